"""One element at a time: functions of one number, of several, and activations."""
