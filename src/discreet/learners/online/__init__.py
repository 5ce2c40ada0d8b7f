"""Learners that choose the policies of the next users. They read only releases, not the data of users."""
