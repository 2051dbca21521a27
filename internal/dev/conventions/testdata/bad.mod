module example.com/bad

go 1.26.0

require (
	example.com/fine v1.2.3
	example.com/commit v0.0.0-20260101000000-abcdefabcdef
	example.com/old v2.0.0+incompatible
)

tool (
	example.com/fine/cmd/fine
	example.com/nowhere/cmd
)

replace example.com/fine => ../fine
