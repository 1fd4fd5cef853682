#include "bench/failover/trial.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/failover/fault.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/counters.h"

namespace rewire::bench {
namespace {

// Limit of a wait for a rail to fail, or for all failed rails to be up again.
constexpr Duration kRails = seconds(60);

}  // namespace

absl::StatusOr<std::unique_ptr<Trial>> Trial::Open() {
  if (std::getenv("REWIRE_VM_DEVICES") == nullptr) {
    return absl::FailedPreconditionError(
        "open the net: REWIRE_VM_DEVICES is not set: run in the virtual machine of tests/rdma_vm");
  }
  const absl::StatusOr<net::Net*> net = net::Net::Get();
  if (!net.ok()) return net.status();
  if ((*net)->devices() != 4) {
    return absl::FailedPreconditionError(
        absl::StrCat("open the net: devices=", (*net)->devices(), ": must be 4"));
  }
  const int left[] = {0, 1};
  const int right[] = {2, 3};
  const absl::StatusOr<int> from = (*net)->MakeVirtual(left);
  if (!from.ok()) return from.status();
  const absl::StatusOr<int> to = (*net)->MakeVirtual(right);
  if (!to.ok()) return to.status();
  auto flow = Flow::Connect(*net, *from, *to);
  if (!flow.ok()) return flow.status();
  return std::unique_ptr<Trial>(new Trial(*std::move(flow)));
}

absl::StatusOr<Trial::Gaps> Trial::Disturb(std::string_view words, uint64_t messages) {
  Fault fault(words);
  auto gaps = flow_->Carry(messages, [&fault] { return fault.Running(); });
  if (!gaps.ok()) return gaps;
  if (absl::Status ended = fault.Result(); !ended.ok()) return ended;
  return gaps;
}

absl::StatusOr<Trial::Gaps> Trial::Break(std::string_view words, uint64_t messages) {
  const uint64_t before = rails_failed();
  const Time deadline = Now() + kRails;
  Fault fault(words);
  auto gaps = flow_->Carry(
      messages, [&] { return fault.Running() || (rails_failed() == before && Now() < deadline); });
  if (!gaps.ok()) return gaps;
  if (absl::Status ended = fault.Result(); !ended.ok()) return ended;
  if (rails_failed() == before) {
    return absl::DeadlineExceededError(
        absl::StrCat("fault ", std::string(words), ": no rail failed within 60 s"));
  }
  return gaps;
}

absl::Status Trial::AwaitRails() {
  const Time deadline = Now() + kRails;
  while (ValueOf(Counter::kNetRailsBack) < ValueOf(Counter::kNetRailsFailed)) {
    if (Now() > deadline) return absl::DeadlineExceededError("failed rails are not up after 60 s");
    if (const auto gaps = flow_->Carry(1); !gaps.ok()) return gaps.status();
  }
  return absl::OkStatus();
}

}  // namespace rewire::bench
