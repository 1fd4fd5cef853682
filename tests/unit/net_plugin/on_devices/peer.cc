#include "tests/unit/net_plugin/on_devices/peer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "bench/failover/arrivals.h"
#include "net_plugin/plugin/net.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/status_macros.h"

namespace rewire::net {
namespace {

constexpr size_t kBytes = 64 << 10;
constexpr size_t kOutstanding = 8;
// A message of kLastBytes bytes is the first of the last kOutstanding messages: a receiver has
// kOutstanding receives outstanding, and each must have its message.
constexpr size_t kLastBytes = 8;
constexpr int kTag = 1;

struct Buffer {
  std::vector<char> bytes = std::vector<char>(kBytes);
  void* mr = nullptr;
};

absl::Status Register(Comm* comm, std::array<Buffer, kOutstanding>* buffers) {
  for (Buffer& b : *buffers) {
    REWIRE_ASSIGN_OR_RETURN(b.mr, comm->Register(b.bytes.data(), kBytes, kPtrHost));
  }
  return absl::OkStatus();
}

void Deregister(Comm* comm, std::array<Buffer, kOutstanding>* buffers) {
  for (const Buffer& b : *buffers) (void)comm->Deregister(b.mr);
}

absl::StatusOr<int> DeviceOf(Net* net, int first) {
  const int ports[] = {first, first + 1};
  return net->MakeVirtual(ports);
}

// Standard input has ended.
bool Over() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) == 1;
}

absl::Status Send(Net* net) {
  REWIRE_ASSIGN_OR_RETURN(const int device, DeviceOf(net, 0));
  char handle[kHandleBytes];
  if (read(STDIN_FILENO, handle, sizeof handle) != sizeof handle) {
    return absl::InternalError("no handle");
  }
  std::unique_ptr<Sender> sender;
  while (sender == nullptr) {
    REWIRE_ASSIGN_OR_RETURN(sender, net->Connect(device, handle));
  }
  std::array<Buffer, kOutstanding> buffers;
  REWIRE_RETURN_IF_ERROR(Register(sender.get(), &buffers));
  std::deque<Request*> sends;
  std::optional<uint64_t> end;
  for (uint64_t sent = 0; sent != end || !sends.empty();) {
    if (!end && sent % 20 == 0 && Over()) end = sent + kOutstanding;
    if (sent != end && sends.size() < kOutstanding) {
      Buffer& b = buffers[sent % kOutstanding];
      bench::FillMessage(sent, b.bytes);
      REWIRE_ASSIGN_OR_RETURN(Request* const made,
                              sender->Isend(b.bytes.data(), end ? kLastBytes : kBytes, kTag, b.mr));
      if (made != nullptr) {
        sends.push_back(made);
        ++sent;
      }
    }
    if (sends.empty()) continue;
    REWIRE_ASSIGN_OR_RETURN(const bool done, sender->Test(sends.front(), nullptr));
    if (done) sends.pop_front();
  }
  Deregister(sender.get(), &buffers);
  return absl::OkStatus();
}

absl::Status Receive(Net* net) {
  REWIRE_ASSIGN_OR_RETURN(const int device, DeviceOf(net, 2));
  char handle[kHandleBytes];
  REWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Listener> listener, net->Listen(device, handle));
  if (write(STDOUT_FILENO, handle, sizeof handle) != sizeof handle) {
    return absl::InternalError("nobody takes the handle");
  }
  std::unique_ptr<Receiver> receiver;
  while (receiver == nullptr) {
    REWIRE_ASSIGN_OR_RETURN(receiver, listener->Accept());
  }
  std::array<Buffer, kOutstanding> buffers;
  REWIRE_RETURN_IF_ERROR(Register(receiver.get(), &buffers));
  std::deque<Request*> receives;
  bench::Arrivals arrivals;
  std::optional<uint64_t> end;
  uint64_t received = 0;
  for (uint64_t posted = 0; received != end;) {
    if (posted != end && receives.size() < kOutstanding) {
      Buffer& b = buffers[posted % kOutstanding];
      void* const data = b.bytes.data();
      REWIRE_ASSIGN_OR_RETURN(Request* const made,
                              receiver->Irecv(1, &data, &kBytes, &kTag, &b.mr));
      if (made != nullptr) {
        receives.push_back(made);
        ++posted;
      }
    }
    if (receives.empty()) continue;
    int size = 0;
    REWIRE_ASSIGN_OR_RETURN(const bool done, receiver->Test(receives.front(), &size));
    if (!done) continue;
    receives.pop_front();
    std::vector<char>& bytes = buffers[received % kOutstanding].bytes;
    if (size == kLastBytes && !end) end = received + kOutstanding;
    ++received;
    if (end) continue;
    arrivals.Add({bytes.data(), size == static_cast<int>(kBytes) ? kBytes : 0});
    // A write that lands late is detected in a later message.
    std::fill(bytes.begin(), bytes.end(), 'x');
    if (!arrivals.flawless()) return absl::InternalError("what came is wrong");
    if (arrivals.next() % 20 == 0 && write(STDOUT_FILENO, ".", 1) != 1) break;
  }
  Deregister(receiver.get(), &buffers);
  return absl::OkStatus();
}

}  // namespace

int RunPeer(std::string_view role) {
  const absl::StatusOr<Net*> net = Net::Get();
  const absl::Status status = !net.ok()        ? net.status()
                              : role == "send" ? Send(*net)
                                               : Receive(*net);
  if (status.ok()) return 0;
  const std::string name(role);
  fprintf(stderr, "%s: %s\n", name.c_str(), status.ToString().c_str());
  return status.code() == absl::StatusCode::kUnavailable ? kPeerFailed : 1;
}

}  // namespace rewire::net
