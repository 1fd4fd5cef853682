// The linker sees this library instead of NCCL: it has the same SONAME and the symbols that the
// trainer calls. The trainer is therefore an ordinary NCCL program (DT_NEEDED libnccl.so.2) that
// builds without NCCL. The library is never installed and on no library path; at run time the
// loader finds the real library.
#include <cstdlib>

#define TRAINER_NCCL(name, result, arguments) \
  extern "C" __attribute__((visibility("default"))) void name() { std::abort(); }
#include "bench/trainer/nccl_functions.def"
#undef TRAINER_NCCL
