// One rank as a process, for the multi-process tests. It reads the unique id from standard input
// (rank 0 first writes it to standard output), then one command per byte of standard input:
//
//   r  one AllReduce, checked; answers "r"
//   w  AllReduces until the asynchronous error; answers "e" and the number of the error
//   a  aborts the communicator; answers "a"
//   d  destroys it; answers "d"
//
// It answers "x" after any error. Every rank uses device 0 as a separate host.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/unit/simgpu_nccl/world.h"

namespace {

void Say(const std::string& text) { (void)!::write(STDOUT_FILENO, text.data(), text.size()); }

bool Read(void* data, size_t bytes) {
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::read(STDIN_FILENO, p, bytes);
    if (n <= 0) return false;
    p += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int rank = std::atoi(argv[1]);
  const int nranks = std::atoi(argv[2]);
  ncclUniqueId id;
  if (rank == 0) {
    if (ncclGetUniqueId(&id) != ncclSuccess) return 3;
    Say(std::string(id.internal, sizeof(id.internal)));
  } else if (!Read(&id, sizeof(id))) {
    return 3;
  }
  simnccl::Rank gpu(0);
  ncclComm_t comm = nullptr;
  const ncclResult_t made = ncclCommInitRank(&comm, nranks, id, rank);
  Say(made == ncclSuccess ? "i" : "x");
  int64_t* data = gpu.Put<int64_t>({0});
  char command;
  while (Read(&command, 1)) {
    ncclResult_t state = ncclSuccess;
    if (command == 'r') {
      *data = rank + 1;
      const bool right =
          ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream()) == ncclSuccess &&
          gpu.Sync() && *data == nranks * (nranks + 1) / 2;
      Say(right ? "r" : "x");
    } else if (command == 'w') {
      (void)ncclAllReduce(data, data, 1, ncclInt64, ncclSum, comm, gpu.stream());
      const bool seen = simnccl::Eventually([&] {
        return ncclCommGetAsyncError(comm, &state) == ncclSuccess && state != ncclSuccess;
      });
      Say(seen ? "e" + std::to_string(state) : "x");
    } else if (command == 'a') {
      Say(ncclCommAbort(comm) == ncclSuccess && gpu.Sync() ? "a" : "x");
    } else {
      Say(ncclCommDestroy(comm) == ncclSuccess ? "d" : "x");
    }
  }
  return 0;
}
