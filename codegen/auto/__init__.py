"""What loops cost: facts of a machine (`machine`, `measure`), what is counted of a nest (`summary`, `features`), nanoseconds (`cost`)."""
