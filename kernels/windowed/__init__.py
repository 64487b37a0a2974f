"""Over windows and grids: convolutions, poolings, stencils, filters, resampling."""
