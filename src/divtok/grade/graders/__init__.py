"""The graders that come with divtok, one file each; importing a file registers its grader."""
