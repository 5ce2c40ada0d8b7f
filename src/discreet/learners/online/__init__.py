"""Learners that choose the policy of the next users. They read releases only, never the data of users."""
