// As in exam/cases: what the cases share is built with them, and no package of perfdoctor.
module drivers

go 1.24
