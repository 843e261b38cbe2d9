"""The protocols that come with divtok, one file each; importing a file registers its protocol."""
