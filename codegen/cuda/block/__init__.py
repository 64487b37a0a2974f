"""What the threads of a block share out: lanes, grids, shuffles, rows held in registers, shared memory."""
