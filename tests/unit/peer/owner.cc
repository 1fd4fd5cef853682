// The other member of the tests: offers BYTES of device memory on stdout as one line of hex, and
// puts version n into it for every line "n" on stdin. Ends with stdin.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "reconfig/stream/peer_memory.h"
#include "tests/unit/peer/device.h"

int main(int argc, char** argv) {
  using namespace rewire;
  const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const CUcontext context = UseFirstDevice();
  if (context == nullptr || bytes == 0) return 1;
  StateMemory memory;
  const StatePlace place = DeviceMemory(context, bytes + 512);
  const auto write = [&](int version) {
    std::vector<char> values(bytes);
    for (size_t i = 0; i < bytes; ++i) values[i] = OwnerByte(i, version);
    return memory.Write(values.data(), place.At(512), bytes).ok();
  };
  // The part does not begin where its allocation does.
  const auto offered = OfferPlace(3, place.At(512), bytes);
  if (!offered.ok() || !write(0)) return 2;
  for (const char c : EncodePeerOffer({9, NodeIdentity(), {*offered}})) {
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
