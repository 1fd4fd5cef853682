// What the linker is shown in place of NCCL: a library of the same SONAME with the symbols that the
// trainer calls, so that it is an ordinary NCCL program (DT_NEEDED libnccl.so.2) and yet builds
// without NCCL. Never installed, never on a library path; at run time the loader finds the real
// one.
#include <cstdlib>

#define TRAINER_NCCL(name, result, arguments) \
  extern "C" __attribute__((visibility("default"))) void name() { std::abort(); }
#include "bench/trainer/nccl_functions.def"
#undef TRAINER_NCCL
