"""The engines that ship with divtok, one a file; see `divtok.generate.engine`."""
