"""The plan, the result and the data set as pictures: in the terminal, as an HTML page, as JSON."""
