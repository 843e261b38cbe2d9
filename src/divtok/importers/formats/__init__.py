"""The formats that come with divtok, one file each; importing a file registers its importer."""
