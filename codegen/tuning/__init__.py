"""Tuning: a search around the analytic schedule, and what it found kept in a file that others can use.

    operation    which programs share a record: the text of a program, extents by class
    records      the file: one line per operation, class and machine; reading, writing, merging
    lookup       the schedule that a program gets by default: by its record where there is one, else by the model
    order        whether two schedules add up in the same order
    search       which choices to try next, and when one counts as better: knows nothing of machines, only a bench
    timing       a program on a bench: schedules built, checked against the model's, run side by side
    worker       a bench in a process of its own
    remote       that process from outside: a candidate that crashes or hangs ends it, and the search goes on
    session      all of it: a program tuned within a budget

A tuned schedule is the default schedule with other answers to some of its decisions (`codegen.schedule.decisions`): words, which
are legal for any extents and name nothing that runs. The record keeps the calls of the schedule beside them, for people.
"""
