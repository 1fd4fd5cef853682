#include "tests/unit/net_plugin/verbs/pair.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace rewire::net {
namespace {

rdma::fake::FabricOptions FabricOf(const PairOptions& options) {
  rdma::fake::FabricOptions out;
  out.seed = options.seed;
  out.jitter = options.jitter;
  out.landing_unit = 64;
  return out;
}

}  // namespace

// Replaces WatchByWorkers: Pair::Advance() runs this worker on the test's thread. The worker models
// the worst case, in which an event that was read during the caller's turn starts no look.
class Pair::Worker final : public Watch {
 public:
  Worker(Pair* pair, int fd, Look look) : pair_(pair), fd_(fd), look_(std::move(look)) {
    pair_->worker_ = this;
  }
  ~Worker() override { pair_->worker_ = nullptr; }

  bool Enter() override { return entered_ = true; }
  void Leave(bool at_once) override {
    entered_ = false;
    if (at_once) next_ = Next::kAtOnce;
  }
  std::function<void()> Waker() const override {
    return [pair = pair_] {
      if (pair->worker_ != nullptr) pair->worker_->next_ = Next::kAtOnce;
    };
  }

  // Calls look_() if a look is due and this is not the caller's turn.
  void Come() {
    if (entered_ || next_ == Next::kNothing) return;
    pollfd event{fd_, POLLIN, 0};
    if (next_ == Next::kReadable && poll(&event, 1, 0) != 1) return;
    next_ = look_();
  }

 private:
  Pair* const pair_;
  const int fd_;
  const Look look_;
  Next next_ = Next::kReadable;
  bool entered_ = false;
};

Pair::Pair(const PairOptions& options) : fabric(FabricOf(options)), random_(options.seed) {
  receiver_spied->unfenced = options.unfenced;
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  sender_link_ = std::make_unique<Link>();
  sender_link_->streams.emplace_back(UniqueFd(fds[0]));
  receiver_link_ = std::make_unique<Link>();
  receiver_link_->streams.emplace_back(UniqueFd(fds[1]));
  const Nics senders = {
      Open("s", options.sender_ports + options.sender_others, options, sender_spied),
      options.sender_ports};
  const Nics receivers = {
      Open("r", options.receiver_ports + options.receiver_others, options, receiver_spied),
      options.receiver_ports};

  ConnectionOptions o;
  o.rail.timeout = 5;  // 131 us
  o.rail.retries = 2;
  o.rail.adaptive = options.adaptive;
  o.rail.apart = 1000;
  o.piece_bytes = 4096;
  o.answer = milliseconds(50);
  o.join = milliseconds(5);
  o.drain = microseconds(200);
  o.first_retry = microseconds(200);
  o.most_retry = milliseconds(2);
  o.error_grace = milliseconds(2);
  o.device_wait = milliseconds(50);
  // Background work takes a random time, as on a device.
  const auto background = [this](bool sender) {
    return [this, sender](std::function<void()> work) {
      jobs_.push_back(
          {sender, fabric.now() + random_.Between(Duration{}, microseconds(300)), std::move(work)});
    };
  };
  const auto never = [](const std::function<void()>&) {};
  o.run = background(true);
  if (options.uncopied) {
    o.copy = never;
  } else {
    o.copy = o.run;
  }
  o.now = [this] { return fabric.now(); };
  o.counters = counters;
  o.seed = options.seed;
  auto sending = std::make_unique<Connection>(
      sender_link_.get(), senders, PeerPorts{options.receiver_ports, options.receiver_others}, o);
  sending_ = sending.get();
  sender_link_->attachment = std::move(sending);
  o.seed = options.seed + 1'000'000;
  o.run = background(false);
  if (!options.uncopied) o.copy = o.run;
  o.watch = [this, unwatched = options.unwatched](int fd, Watch::Look look) {
    return unwatched ? nullptr : std::make_unique<Worker>(this, fd, std::move(look));
  };
  auto receiving = std::make_unique<Connection>(receiver_link_.get(), receivers, std::nullopt, o);
  receiving_ = receiving.get();
  receiver_link_->attachment = std::move(receiving);
}

Pair::~Pair() {
  // The ends return their links to sender_links_ and receiver_links_, which must outlive the ends.
  sender.reset();
  receiver.reset();
}

std::vector<std::shared_ptr<Nic>> Pair::Open(const std::string& side, size_t ports,
                                             const PairOptions& options,
                                             const std::shared_ptr<Spied>& spied) {
  std::vector<std::string> names;
  for (size_t i = 0; i < ports; ++i) {
    names.push_back(side + std::to_string(i));
    rdma::fake::DeviceSpec spec;
    spec.name = names.back();
    spec.mtu = 1024;
    spec.link_layer = options.link_layer;
    if (i < options.mbps.size()) spec.speed_mbps = options.mbps[i];
    if (side == "r") spec.ece = options.receiver_ece;
    fabric.AddDevice(spec);
  }
  const std::unique_ptr<rdma::Driver> driver = Spy(fabric.MakeDriver(names), spied);
  std::vector<std::shared_ptr<Nic>> nics;
  for (const std::string& name : names) {
    devices_.push_back(name);
    auto nic = Nic::Open(driver.get(), name, (*driver->Devices())[nics.size()].ports[0]);
    EXPECT_TRUE(nic.ok()) << nic.status();
    nics.push_back(*std::move(nic));
  }
  return nics;
}

void Pair::Advance(Duration duration) {
  fabric.Advance(duration);
  // The background work of each end runs in the order in which it was submitted.
  for (const bool sender : {true, false}) {
    for (;;) {
      const auto at = std::find_if(jobs_.begin(), jobs_.end(),
                                   [&](const Job& job) { return job.sender == sender; });
      if (stopped(sender) || at == jobs_.end() || at->due > fabric.now()) break;
      const std::function<void()> work = std::move(at->work);
      jobs_.erase(at);
      work();
    }
  }
  if (worker_ != nullptr && !stopped(false)) worker_->Come();
}

absl::Status Pair::Join(const std::function<void()>& between) {
  bool sender_up = false;
  bool receiver_up = false;
  for (int i = 0; i < 100'000 && (!sender_up || !receiver_up); ++i) {
    Advance(microseconds(1));
    between();
    if (!stopped(true)) {
      const absl::StatusOr<bool> s = sending_->Establish();
      if (!s.ok()) return s.status();
      sender_up = sender_up || *s;
    }
    if (!stopped(false)) {
      const absl::StatusOr<bool> r = receiving_->Establish();
      if (!r.ok()) return r.status();
      receiver_up = receiver_up || *r;
    }
  }
  if (!sender_up || !receiver_up) return absl::DeadlineExceededError("join: an end is not up");
  sender = std::make_unique<VerbsSender>(std::move(sender_link_), &sender_links_);
  receiver = std::make_unique<VerbsReceiver>(std::move(receiver_link_), &receiver_links_);
  return absl::OkStatus();
}

absl::Status Pair::Carry(void* out, void* from, void* in, void* to, size_t bytes,
                         const std::function<void()>& between) {
  const int tag = 1;
  const auto receive = receiver->Irecv(1, &in, &bytes, &tag, &to);
  if (!receive.ok()) return receive.status();
  Request* send = nullptr;
  bool sent = false;
  bool received = false;
  for (int i = 0; i < 2'000'000 && !(sent && received); ++i) {
    // Advance the clock here, because nothing else advances the clock while no rail is up.
    Advance(nanoseconds(200));
    between();
    if (send == nullptr) {
      const auto made = sender->Isend(out, bytes, tag, from);
      if (!made.ok()) return made.status();
      send = *made;
    } else if (!sent) {
      const auto done = sender->Test(send, nullptr);
      if (!done.ok()) return done.status();
      sent = *done;
    }
    if (received) continue;
    const auto done = receiver->Test(*receive, nullptr);
    if (!done.ok()) return done.status();
    received = *done;
  }
  return sent && received ? absl::OkStatus() : absl::DeadlineExceededError("carry: not complete");
}

}  // namespace rewire::net
