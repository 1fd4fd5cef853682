// The other member of the tests. Prints an offer of BYTES of device memory to stdout as one line of
// hex, and writes version n into the memory for every line "n" on stdin. Exits at the end of stdin.
// PIECES: number of mapped pieces; 0: the memory is from cuMemAlloc.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "reconfig/state/stream/peer_memory.h"
#include "tests/unit/peer/device.h"

int main(int argc, char** argv) {
  using namespace rewire::state;
  const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const size_t pieces = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const CUcontext context = UseFirstDevice();
  if (context == nullptr || bytes == 0) return 1;
  StateMemory memory;
  const StatePlace place =
      pieces == 0 ? DeviceMemory(context, bytes + 512) : MappedMemory(context, bytes + 512, pieces);
  const auto write = [&](int version) {
    std::vector<char> values(bytes);
    for (size_t i = 0; i < bytes; ++i) values[i] = OwnerByte(i, version);
    return memory.Write(values.data(), place.At(512), bytes).ok();
  };
  // The part does not begin at the start of its allocation.
  OfferedMemory offered;
  if (!offered.Add(3, place.At(512), bytes).ok() || !write(0)) return 2;
  for (const char c : EncodePeerOffer(offered.Publish(9))) {
    std::printf("%02x", static_cast<unsigned char>(c));
  }
  std::printf("\n");
  std::fflush(stdout);
  for (int version = 0; std::cin >> version;) {
    if (!write(version)) return 3;
    std::printf("%d\n", version);
    std::fflush(stdout);
  }
}
