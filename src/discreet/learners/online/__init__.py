"""Learners that choose the policies of the next users. They read releases, never the data of users."""
