// Package data reads training data and deals it out: which samples make up global step
// s, which of them are this rank's, and their bytes in the program's types.
//
// # Files
//
//   - .npz and .npy (package npz) and .safetensors: every array is [n, ...], one row a
//     sample. Several files of a kind are taken one after the other along the first dim.
//     Of an input with a BatchDim, samples may lie along that dim instead, as in the model;
//     an array that could be either is refused.
//   - .bin, .tok (uint16), .txt (uint8), or any file when Options.Tokens names a type:
//     flat little-endian tokens without a header, cut into windows of T tokens: the array
//     "x" is tokens[i:i+T], the array "y" is tokens[i+1:i+T+1]. T is the model's. Labels
//     that the model shifts itself (Input.Ahead) are "x" as well.
//
// Arrays meet the model's inputs by name: Options.Map first, then the input's own name,
// then for a target one of TargetNames, for the k-th other input "in<k>", for a sole
// other input "x"; and when one input and one array are left over, they belong together.
// Files are mapped where the format allows, so a data set may be larger than memory.
//
// # Types
//
// An array whose type is the input's is copied. Integers (and bool) of any width go into
// integers of any width, each value checked to fit, and into floats by value: a uint8
// image arrives as 0..255 unless a Transform scales it; nothing is scaled silently.
// Floats of another width need a Transform (the identity will do). Floats never become
// integers. Dims of size 1 may be missing or added; any other difference in shape is an
// error.
//
// # Order
//
// The samples of a global step are a function of the seed and the step alone (Sampler),
// so a run that resumes on another number of ranks, or with other micro-batches, repeats
// and skips nothing.
package data
