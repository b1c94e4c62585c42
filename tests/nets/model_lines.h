/* Models of one node from one line of text, for tables of good and bad ones.
 *
 *   Conv@13 x:f[N,3,8,8] w=f[4,3,3,3] .group=1 .pads=[1,1,1,1]
 *
 * Operator and opset; then inputs in order: NAME:T[dims] an input of the graph ("N": symbolic), NAME=T[dims] a constant of zeros,
 * NAME=T{a,b} and NAME=T(a) constants with these values, NAME=T! a constant that claims [2] but holds nothing, `-` one left out, and a bare NAME one
 * that was named before (or nowhere). Attributes: .n=1 .n=[1,2] whole numbers, .n=1.5f .n=[1f,2f] floats (inff, nanf), .n='text'. Outputs:
 * ->NAME each; "y" if there is none. T: f float32, d float64, h float16, i int64, j int32, u uint8, c int8, b bool. Anything else aborts. */
#ifndef SY_TESTS_NETS_MODEL_LINES_H
#define SY_TESTS_NETS_MODEL_LINES_H

/* Writes the model of `line` to `path`. */
void model_line_save(const char *path, const char *line);

#endif
