// A sender and a receiver over devices in memory, in virtual time, on the test's thread: the same
// seed gives the same run. Owned by the test's thread.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net_plugin/socket/links.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/verbs_receiver.h"
#include "net_plugin/verbs/verbs_sender.h"
#include "tests/fakes/rdma/fabric.h"
#include "tests/sim/seeded_random.h"
#include "tests/unit/net_plugin/verbs/spied_driver.h"

namespace rewire::net {

struct PairOptions {
  uint64_t seed = 1;
  size_t sender_ports = 2;
  size_t receiver_ports = 2;
  size_t sender_others = 0;  // additional ports for takeover, named after these
  size_t receiver_others = 0;
  std::vector<uint32_t> mbps;  // of the sender's ports, then of the receiver's
  Duration jitter = microseconds(2);
  rdma::Ece receiver_ece = {0xfa4e, 0x5};
  rdma::LinkLayer link_layer = rdma::LinkLayer::kEthernet;
  std::optional<bool> adaptive;  // true: pieces of more than 1000 bytes are sent separately
  bool unfenced = false;         // the receiver omits the fence
  bool uncopied = false;         // device memory is never copied
  bool unwatched = false;        // only the test polls the receiver
};

class Pair {
 public:
  explicit Pair(const PairOptions& options);
  ~Pair();

  // Connects both ends; afterwards `sender` and `receiver` are valid. Returns the error of a failed
  // connection. Calls `between` repeatedly.
  absl::Status Join(const std::function<void()>& between = [] {});
  // Carries one message from memory registered as `from` at the sender to memory registered as `to`
  // at the receiver. Calls `between` as Join() does. Returns the first failure of either side.
  absl::Status Carry(
      void* out, void* from, void* in, void* to, size_t bytes,
      const std::function<void()>& between = [] {});
  // Advances the clock and the ends' background work, including a receiver without requests.
  void Advance(Duration duration);
  // Acts like SIGSTOP: this end does nothing in the background, and the test does not poll it. Its
  // devices continue.
  void Stop(bool sender, bool stopped) { stopped_[sender ? 0 : 1] = stopped; }
  [[nodiscard]] bool stopped(bool sender) const { return stopped_[sender ? 0 : 1]; }

  // "s0", "s1".., "r0", "r1"..
  [[nodiscard]] const std::vector<std::string>& devices() const { return devices_; }
  [[nodiscard]] Connection& sending() const { return *sending_; }
  [[nodiscard]] Connection& receiving() const { return *receiving_; }

  rdma::fake::Fabric fabric;
  std::shared_ptr<Spied> sender_spied = std::make_shared<Spied>();
  std::shared_ptr<Spied> receiver_spied = std::make_shared<Spied>();
  const std::shared_ptr<RailCounters> counters = std::make_shared<RailCounters>();
  std::unique_ptr<VerbsSender> sender;
  std::unique_ptr<VerbsReceiver> receiver;

 private:
  class Worker;
  std::vector<std::shared_ptr<Nic>> Open(const std::string& side, size_t ports,
                                         const PairOptions& options,
                                         const std::shared_ptr<Spied>& spied);

  sim::SeededRandom random_;
  struct Job {
    bool sender;
    Time due;
    std::function<void()> work;
  };
  std::deque<Job> jobs_;
  Worker* worker_ = nullptr;  // the receiver's worker
  std::array<bool, 2> stopped_{};
  std::vector<std::string> devices_;
  Links sender_links_{{}};
  Links receiver_links_{{}};
  std::unique_ptr<Link> sender_link_;
  std::unique_ptr<Link> receiver_link_;
  Connection* sending_ = nullptr;
  Connection* receiving_ = nullptr;
};

}  // namespace rewire::net
