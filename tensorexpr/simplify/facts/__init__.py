"""What is known where an expression stands: bounds of indices and values, conditions that hold, and the normal forms that follow
for indices (`indices`) and conditions; what may overflow (`overflow`), where sorted keys lie (`sort_ranges`)."""
