// A message over a link arrives once, complete and in its place, whatever device fault occurs at
// whatever time. Hundreds of seeds run, each with its own faults. The test overwrites received
// bytes at once, so that a byte that lands late is detected. SEEDS=FIRST-LAST in the environment
// runs these seeds instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>

#include "tests/sim/seeded_random.h"
#include "tests/unit/net_plugin/verbs/pair.h"

namespace rewire::net {
namespace {

using sim::SeededRandom;

constexpr size_t kReceives = 150;
constexpr size_t kMostBytes = 48 << 10;
constexpr char kOwned = 0x5A;  // the program owns the buffer, after the receive

char ByteAt(size_t message, size_t position) {
  return static_cast<char>(MixWord(message, position / 8) >> (8 * (position % 8)));
}

enum class Fault { kLinkDown, kLoss, kSilence, kDelay, kQueuePair, kDevice, kGids, kSlow, kStop };
constexpr int kFaults = 9;

// One run: receives of one to four buffers each, with faults at random times.
class Trial {
 public:
  Trial(const PairOptions& options, int faults) : pair_(options), random_(options.seed) {
    for (int i = 0; i < faults; ++i) {
      times_.push_back(random_.Between(Duration{}, milliseconds(3)));
    }
    std::sort(times_.begin(), times_.end());
    closes_at_once_ = random_.OneIn(2);
  }

  // Deregisters before the memory is freed: nothing lands in memory that is no longer registered.
  ~Trial() {
    for (Buffer& m : messages_) Forget(&m);
    for (auto& rooms : rooms_) {
      for (Buffer& room : rooms) Forget(&room);
    }
  }

  // Returns a description of the failure; empty: none.
  std::string Go() {
    const absl::Status joined = pair_.Join([this] { Meddle(); });
    if (!joined.ok()) return joined.ToString();
    Register();
    begun_ = pair_.fabric.now();
    for (int step = 0; step < 400'000; ++step) {
      Strike();
      Meddle();
      pair_.Advance(nanoseconds(100));
      if (random_.OneIn(2) && !Send()) return wrong_;
      if (random_.OneIn(2) && !Receive()) return wrong_;
      // A receiver that waits for nothing sends its pending answers now or when it closes.
      const bool all = received_ == kReceives && !pair_.stopped(false);
      if (all && closes_at_once_) pair_.receiver.reset();
      if (received_ == kReceives && sends_.empty()) return Settle();
    }
    return "it did not end: " + std::to_string(received_) + " of " + std::to_string(kReceives);
  }

  Pair& pair() { return pair_; }
  bool allow_loss = false;  // data that a device has acknowledged may be lost, with a named error
  // Called once, when `at` has passed since the beginning.
  Duration at{};
  std::function<void(Pair*)> meddling;

 private:
  struct Buffer {
    std::vector<char> bytes;
    void* memory = nullptr;
    size_t sent = 0;  // bytes of its message
  };
  // Frees the registration like both ends' Deregister; one of the ends may be gone.
  static void Forget(Buffer* buffer) { delete static_cast<Registration*>(buffer->memory); }
  struct Pending {
    Request* request;
    size_t index;
  };

  void Register() {
    size_t message = 0;
    for (size_t r = 0; r < kReceives; ++r) {
      const size_t count = random_.OneIn(3) ? 1 + random_.Below(4) : 1;
      auto& rooms = rooms_.emplace_back();
      for (size_t i = 0; i < count; ++i, ++message) {
        const size_t bytes = random_.OneIn(8)   ? 0
                             : random_.OneIn(2) ? random_.Below(kMostBytes)
                                                : random_.Below(200);
        Buffer& out = messages_.emplace_back();
        for (size_t p = 0; p < bytes; ++p) out.bytes.push_back(ByteAt(message, p));
        out.sent = bytes;
        if (bytes > 0) out.memory = *pair_.sender->Register(out.bytes.data(), bytes, kPtrHost);
        Buffer& room = rooms.emplace_back();
        room.bytes.assign(bytes + 1 + random_.Below(64), 0);
        room.sent = bytes;
        room.memory = *pair_.receiver->Register(room.bytes.data(), room.bytes.size(), kPtrHost);
      }
    }
  }

  bool Failed(const absl::Status& status) {
    const bool lost = status.message().find("acknowledged") != status.message().npos ||
                      status.message().find("closed") != status.message().npos;
    wrong_ = allow_loss && lost ? "" : status.ToString();
    return false;
  }

  void Meddle() {
    if (meddling && pair_.fabric.now() - Time{} >= at) std::exchange(meddling, {})(&pair_);
  }

  bool Send() {
    if (pair_.stopped(true)) return true;
    if (next_send_ < messages_.size() && sends_.size() < 40) {
      Buffer& m = messages_[next_send_];
      const auto made = pair_.sender->Isend(m.bytes.data(), m.sent, TagOf(next_send_), m.memory);
      if (!made.ok()) return Failed(made.status());
      if (*made != nullptr) sends_.push_back({*made, next_send_++});
    }
    for (auto at = sends_.begin(); at != sends_.end();) {
      const auto done = pair_.sender->Test(at->request, nullptr);
      if (!done.ok()) return Failed(done.status());
      if (*done) {
        // The program owns the buffer again: a retransmission from it would be detected.
        Buffer& m = messages_[at->index];
        std::fill(m.bytes.begin(), m.bytes.end(), kOwned);
      }
      at = *done ? sends_.erase(at) : std::next(at);
    }
    return true;
  }

  bool Receive() {
    if (pair_.receiver == nullptr || pair_.stopped(false)) return true;
    if (next_receive_ < kReceives && receives_.size() < 8) {
      std::vector<void*> data;
      std::vector<void*> memory;
      std::vector<size_t> bytes;
      std::vector<int> tags;
      for (Buffer& room : rooms_[next_receive_]) {
        tags.push_back(TagOf(next_room_ + data.size()));
        data.push_back(room.bytes.data());
        memory.push_back(room.memory);
        bytes.push_back(room.bytes.size());
      }
      const auto made = pair_.receiver->Irecv(static_cast<int>(data.size()), data.data(),
                                              bytes.data(), tags.data(), memory.data());
      if (!made.ok()) return Failed(made.status());
      if (*made != nullptr) {
        receives_.push_back({*made, next_receive_++});
        next_room_ += data.size();
      }
    }
    for (auto at = receives_.begin(); at != receives_.end();) {
      int sizes[kMaxRecvs];
      const auto done = pair_.receiver->Test(at->request, sizes);
      if (!done.ok()) return Failed(done.status());
      if (*done && !Check(at->index, sizes)) return false;
      at = *done ? receives_.erase(at) : std::next(at);
    }
    return true;
  }

  bool Check(size_t receive, const int* sizes) {
    size_t message = 0;
    for (size_t r = 0; r < receive; ++r) message += rooms_[r].size();
    for (Buffer& room : rooms_[receive]) {
      if (static_cast<size_t>(*sizes++) != room.sent) wrong_ = "a wrong size";
      for (size_t p = 0; p < room.sent && wrong_.empty(); ++p) {
        if (room.bytes[p] != ByteAt(message, p)) {
          wrong_ = "message " + std::to_string(message) + " is wrong at " + std::to_string(p);
        }
      }
      std::fill(room.bytes.begin(), room.bytes.end(), kOwned);
      ++message;
    }
    ++received_;
    return wrong_.empty();
  }

  // Waits for everything that may still be on its way.
  std::string Settle() {
    for (const std::string& device : pair_.devices()) pair_.fabric.Release(device);
    pair_.Advance(milliseconds(20));
    for (auto& rooms : rooms_) {
      for (const Buffer& room : rooms) {
        if (std::any_of(room.bytes.begin(), room.bytes.end(), [](char c) { return c != kOwned; })) {
          return "a byte landed after its message was received";
        }
      }
    }
    return "";
  }

  // Messages of one receive have different tags.
  static int TagOf(size_t message) { return static_cast<int>(message % 7); }

  void Strike() {
    const Duration elapsed = pair_.fabric.now() - begun_;
    for (auto at = repairs_.begin(); at != repairs_.end();) {
      if (at->first > elapsed) {
        ++at;
        continue;
      }
      at->second();
      at = repairs_.erase(at);
    }
    if (times_.empty() || times_.front() > elapsed) return;
    times_.erase(times_.begin());
    const std::vector<std::string>& devices = pair_.devices();
    const std::string device = devices[random_.Below(devices.size())];
    auto& fabric = pair_.fabric;
    const Duration until = elapsed + random_.Between(microseconds(20), milliseconds(3));
    switch (static_cast<Fault>(random_.Below(kFaults))) {
      case Fault::kLinkDown:
        fabric.SetLinkUp(device, false);
        repairs_.push_back({until, [&fabric, device] { fabric.SetLinkUp(device, true); }});
        break;
      case Fault::kLoss:
        fabric.SetLoss(device, static_cast<uint32_t>(random_.Below(300'000)));
        repairs_.push_back({until, [&fabric, device] { fabric.SetLoss(device, 0); }});
        break;
      case Fault::kSilence:
        fabric.SetLoss(device, 1'000'000);
        repairs_.push_back({until, [&fabric, device] { fabric.SetLoss(device, 0); }});
        break;
      case Fault::kDelay:
        fabric.Hold(device);
        repairs_.push_back({until, [&fabric, device] { fabric.Release(device); }});
        break;
      case Fault::kQueuePair: {
        auto& spied = random_.OneIn(2) ? pair_.sender_spied : pair_.receiver_spied;
        if (spied->queue_pairs.empty()) break;
        auto at = spied->queue_pairs.begin();
        std::advance(at, random_.Below(spied->queue_pairs.size()));
        (void)at->second->ToError();
        break;
      }
      case Fault::kDevice:
        if (random_.OneIn(4)) fabric.FailDevice(device);
        break;
      case Fault::kGids: {
        // The rows change places, as when a link flaps.
        auto gids = fabric.MakeDriver({device})->Devices()->front().ports[0].gids;
        for (auto& entry : gids) entry.index += 4;
        fabric.SetGids(device, gids);
        fabric.SetLinkUp(device, false);
        fabric.SetLinkUp(device, true);
        break;
      }
      case Fault::kStop: {
        // Mostly longer than a rail's timeout, sometimes longer than any other timeout.
        const bool sender = random_.OneIn(2);
        pair_.Stop(sender, true);
        repairs_.push_back({random_.OneIn(4) ? until + milliseconds(20) : until,
                            [this, sender] { pair_.Stop(sender, false); }});
        break;
      }
      case Fault::kSlow:
        fabric.SetSpeed(device, 500);
        repairs_.push_back({until, [&fabric, device] { fabric.SetSpeed(device, 100'000); }});
        break;
    }
  }

  Pair pair_;
  SeededRandom random_;
  Time begun_;
  std::vector<Duration> times_;
  std::vector<std::pair<Duration, std::function<void()>>> repairs_;
  std::deque<Buffer> messages_;
  std::deque<std::deque<Buffer>> rooms_;  // index: receive
  std::vector<Pending> sends_;
  std::vector<Pending> receives_;
  size_t next_send_ = 0;
  size_t next_receive_ = 0;
  size_t next_room_ = 0;
  size_t received_ = 0;
  bool closes_at_once_ = false;  // closes the receiver when it has everything
  std::string wrong_;
};

PairOptions OptionsOf(uint64_t seed) {
  PairOptions o;
  o.seed = seed;
  o.sender_ports = 1 + seed % 2;
  o.receiver_ports = 1 + seed / 2 % 2;
  o.sender_others = seed / 4 % 3;
  o.receiver_others = seed / 12 % 2;
  if (seed % 5 == 0) o.jitter = microseconds(60);
  o.adaptive = seed % 7 < 3;
  return o;
}

std::pair<uint64_t, uint64_t> Seeds(uint64_t last) {
  unsigned long long from = 1;
  unsigned long long to = last;
  if (const char* wish = std::getenv("SEEDS")) {
    EXPECT_EQ(std::sscanf(wish, "%llu-%llu", &from, &to), 2) << wish;
  }
  return {from, to};
}

TEST(Failover, DeliversWithoutFault) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(Trial(OptionsOf(seed), 0).Go(), "") << "seed " << seed;
  }
}

TEST(Failover, DeliversOnceDespiteAnyFault) {
  const auto [from, to] = Seeds(500);
  uint64_t fences = 0;
  uint64_t fallback = 0;
  for (uint64_t seed = from; seed <= to; ++seed) {
    Trial trial(OptionsOf(seed), 1 + static_cast<int>(seed % 10));
    ASSERT_EQ(trial.Go(), "") << "seed " << seed;
    fences += trial.pair().sender_spied->errors;
    fallback += trial.pair().counters->fallback.load();
  }
  // Most of the faults have an effect. Which requests fall back to TCP depends on the threads'
  // turns.
  EXPECT_GT(fences, to - from);
  EXPECT_GT(fallback, 0u);
}

// The sender does not notice completions that are lost with a queue. Data that a receiver's device
// has acknowledged and lost gives an error with that name, never wrong data.
TEST(Failover, SurvivesCompletionQueueOverflow) {
  const auto [from, to] = Seeds(100);
  for (uint64_t seed = from; seed <= to; ++seed) {
    Trial trial(OptionsOf(seed), 1);
    trial.allow_loss = seed % 2 == 0;
    auto& spied = seed % 2 == 0 ? trial.pair().receiver_spied : trial.pair().sender_spied;
    spied->completions = 20 + static_cast<uint32_t>(seed);
    ASSERT_EQ(trial.Go(), "") << "seed " << seed;
  }
}

// One fault that takes one rail, at each time from the first offer on.
TEST(Failover, SurvivesFaultInEveryPhase) {
  const auto one = [](Spied* spied, size_t which, auto what) {
    if (spied->queue_pairs.empty()) return;
    auto at = spied->queue_pairs.begin();
    std::advance(at, which % spied->queue_pairs.size());
    what(at->second);
  };
  const auto error = [](rdma::QueuePair* pair) { (void)pair->ToError(); };
  for (size_t step = 0; step < 240; ++step) {
    SCOPED_TRACE(step);
    PairOptions options;
    options.seed = step + 1;
    options.adaptive = step % 4 >= 2;
    Trial trial(options, 0);
    trial.at = microseconds(20) * step;
    // A full completion queue of the receiver may lose writes that were already acknowledged.
    trial.allow_loss = step % 6 == 3;
    trial.meddling = [&](Pair* pair) {
      switch (step % 6) {
        case 0:
          return one(pair->sender_spied.get(), step / 6, error);
        case 1:
          return one(pair->receiver_spied.get(), step / 6, error);
        case 2:
          return pair->fabric.OverrunCompletions("s1");
        case 3:
          return pair->fabric.OverrunCompletions("r1");
        case 4:
          return pair->fabric.FailDevice(step / 6 % 2 == 0 ? "s0" : "r0");
        default:
          pair->Stop(step / 6 % 2 == 0, true);
          trial.at = pair->fabric.now() - Time{} + milliseconds(2);
          trial.meddling = [&, stopped = step / 6 % 2 == 0](Pair* p) { p->Stop(stopped, false); };
      }
    };
    ASSERT_EQ(trial.Go(), "");
  }
}

// Without the fence the trial detects wrong data.
TEST(Failover, CorruptsDataWithoutFence) {
  bool wrong = false;
  for (uint64_t seed = 1; seed <= 200 && !wrong; ++seed) {
    PairOptions options = OptionsOf(seed);
    options.unfenced = true;
    wrong = !Trial(options, 6).Go().empty();
  }
  EXPECT_TRUE(wrong);
}

}  // namespace
}  // namespace rewire::net
