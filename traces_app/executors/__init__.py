"""What runs traces. The contract is in `contract.py`; a plug-in is a function of ten lines (see `python_function.py`)."""
