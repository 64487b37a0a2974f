"""Scatter into gather: at which points a read meets a given element, by exact integer algebra."""
