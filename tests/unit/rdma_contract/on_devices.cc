// rdma_contract [GOOGLETEST-FLAG..] [DEVICE [DEVICE]]: the contract suite on this machine's devices
// through libibverbs. Without names it runs on the first suitable device (loopback), and from that
// device to the next suitable one. Exit status 77, with the reason, if there is no suitable device.
#include <cstdio>
#include <string>

#include "reconfig/base/status_macros.h"
#include "reconfig/rdma/driver.h"
#include "tests/unit/rdma_contract/stage.h"

namespace rewire::rdma {
namespace {

constexpr int kSkipped = 77;

std::vector<std::string>& Chosen() {
  static std::vector<std::string> names;
  return names;
}

// Returns whether the device has the required queue pairs; not every device has them.
absl::Status Suits(Driver* driver, const DeviceInfo& info) {
  if (info.ports.empty() || info.ports[0].state != PortState::kActive) {
    return absl::UnavailableError("no link");
  }
  REWIRE_ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, driver->Open(info.name));
  REWIRE_ASSIGN_OR_RETURN(const std::shared_ptr<CompletionQueue> queue,
                          device->CreateCompletionQueue(1));
  return device->CreateQueuePair({queue, queue}).status();
}

absl::StatusOr<std::vector<std::string>> SuitingDevices() {
  auto driver = LoadVerbs();
  if (!driver.ok()) return driver.status();
  auto devices = (*driver)->Devices();
  if (!devices.ok()) return devices.status();
  std::vector<std::string> names;
  for (const DeviceInfo& device : *devices) {
    const absl::Status suits = Suits(driver->get(), device);
    std::printf("%s: pci %s, %s\n", device.name.c_str(),
                device.pci_path.empty() ? "none" : device.pci_path.c_str(),
                suits.ToString().c_str());
    for (const PortInfo& port : device.ports) {
      std::printf("  port %u: %u Mbit/s, mtu %u, %zu addresses\n", port.number, port.speed_mbps,
                  port.active_mtu, port.gids.size());
    }
    if (suits.ok()) names.push_back(device.name);
  }
  if (names.empty()) {
    return absl::NotFoundError("no RDMA device of this machine has a link and can do RC");
  }
  return names;
}

int Run(int argc, char** argv) {
  const auto found = SuitingDevices();
  if (!found.ok()) {
    std::printf("SKIPPED, nothing was tested: %s\n", found.status().ToString().c_str());
    return kSkipped;
  }
  Chosen() = *found;
  std::vector<std::string> named;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] != '-') named.emplace_back(argv[i]);
  }
  if (!named.empty()) Chosen() = named;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace

std::vector<Ground> Grounds() {
  const auto driver = [] { return LoadVerbs(); };
  const std::vector<std::string>& names = Chosen();
  std::vector<Ground> grounds = {{"Loopback", driver, names[0], names[0]}};
  if (names.size() > 1) grounds.push_back({"TwoDevices", driver, names[0], names[1]});
  return grounds;
}

}  // namespace rewire::rdma

int main(int argc, char** argv) { return rewire::rdma::Run(argc, argv); }
