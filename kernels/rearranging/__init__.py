"""Elements moved: views and layouts, indexing by data, parts of matrices."""
