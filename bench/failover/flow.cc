#include "bench/failover/flow.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/clock.h"

namespace rewire::bench {
namespace {

constexpr size_t kBytes = 96 << 10;
constexpr Duration kConnect = seconds(30);
constexpr Duration kSilence = seconds(60);

}  // namespace

absl::StatusOr<std::unique_ptr<Flow>> Flow::Connect(net::Net* net, int from, int to) {
  char handle[net::kHandleBytes];
  auto listener = net->Listen(to, handle);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<net::Sender> sender;
  std::unique_ptr<net::Receiver> receiver;
  const Time deadline = Now() + kConnect;
  while (sender == nullptr || receiver == nullptr) {
    if (Now() > deadline) return absl::DeadlineExceededError("connect flow: timed out after 30 s");
    if (sender == nullptr) {
      auto made = net->Connect(from, handle);
      if (!made.ok()) return made.status();
      sender = *std::move(made);
    }
    if (receiver == nullptr) {
      auto made = (*listener)->Accept();
      if (!made.ok()) return made.status();
      receiver = *std::move(made);
    }
  }
  std::unique_ptr<Flow> flow(new Flow(std::move(sender), std::move(receiver)));
  if (absl::Status s = Register(flow->sender_.get(), &flow->out_); !s.ok()) return s;
  if (absl::Status s = Register(flow->receiver_.get(), &flow->in_); !s.ok()) return s;
  return flow;
}

Flow::Flow(std::unique_ptr<net::Sender> sender, std::unique_ptr<net::Receiver> receiver)
    : sender_(std::move(sender)), receiver_(std::move(receiver)) {}

Flow::~Flow() {
  for (const Buffer& b : out_) {
    if (b.mr != nullptr) (void)sender_->Deregister(b.mr);
  }
  for (const Buffer& b : in_) {
    if (b.mr != nullptr) (void)receiver_->Deregister(b.mr);
  }
}

absl::Status Flow::Register(net::Comm* comm, Buffers* buffers) {
  for (Buffer& b : *buffers) {
    b.bytes.resize(kBytes);
    const auto mr = comm->Register(b.bytes.data(), kBytes, net::kPtrHost);
    if (!mr.ok()) return mr.status();
    b.mr = *mr;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Flow::Carry(uint64_t messages,
                                                const std::function<bool()>& more) {
  std::vector<double> gaps;
  uint64_t end = arrivals_.next() + messages;
  Time last = Now();
  while (arrivals_.next() < end || !sends_.empty()) {
    const uint64_t before = received_;
    absl::Status moved = Receive(end);
    if (moved.ok()) moved = Send(end);
    if (!moved.ok()) {
      ++errors_;
      return moved;
    }
    const Time now = Now();
    if (received_ == before) {
      if (now - last < kSilence) continue;
      const uint64_t next = arrivals_.next();
      arrivals_.GiveUp(begun_);
      return absl::DeadlineExceededError(
          absl::StrCat("receive message ", next, ": timed out after 60 s (", begun_, " sent)"));
    }
    gaps.push_back(ToMilliseconds(now - last));
    last = now;
    if (more && more()) end = arrivals_.next() + messages;
  }
  return gaps;
}

absl::Status Flow::Receive(uint64_t end) {
  if (receives_.size() < kOutstanding && arrivals_.next() + receives_.size() < end) {
    Buffer& b = in_[posted_ % kOutstanding];
    void* const data = b.bytes.data();
    const int tag = 1;
    const auto made = receiver_->Irecv(1, &data, &kBytes, &tag, &b.mr);
    if (!made.ok()) return made.status();
    if (*made != nullptr) {
      receives_.push_back(*made);
      ++posted_;
    }
  }
  if (receives_.empty()) return absl::OkStatus();
  int size = 0;
  const auto done = receiver_->Test(receives_.front(), &size);
  if (!done.ok()) return done.status();
  if (!*done) return absl::OkStatus();
  receives_.pop_front();
  const std::vector<char>& bytes = in_[received_ % kOutstanding].bytes;
  // A message of another size is corrupt, whatever its contents.
  arrivals_.Add({bytes.data(), size == static_cast<int>(kBytes) ? kBytes : 0});
  ++received_;
  return absl::OkStatus();
}

absl::Status Flow::Send(uint64_t end) {
  if (begun_ < end && sends_.size() < kOutstanding) {
    Buffer& b = out_[begun_ % kOutstanding];
    FillMessage(begun_, b.bytes);
    const auto made = sender_->Isend(b.bytes.data(), kBytes, 1, b.mr);
    if (!made.ok()) return made.status();
    if (*made != nullptr) {
      sends_.push_back(*made);
      ++begun_;
    }
  }
  if (sends_.empty()) return absl::OkStatus();
  const auto done = sender_->Test(sends_.front(), nullptr);
  if (!done.ok()) return done.status();
  if (*done) sends_.pop_front();
  return absl::OkStatus();
}

}  // namespace rewire::bench
