// Streams one transition's state: sends, fetches and checks in the order of the step; see
// reshape.h. Owned by the stream thread.
#include <algorithm>

#include "reconfig/base/bytes.h"
#include "reconfig/base/log.h"
#include "reconfig/elastic/participant/reshape.h"

namespace rewire::elastic {
namespace {

// The limit of a wait that the leader ends by a decision or by ending the transition.
constexpr Duration kLongest = seconds(3600);

double Milliseconds(Duration d) { return static_cast<double>(ToNanoseconds(d)) / 1e6; }

}  // namespace

absl::Status Reshape::ServePulls() {
  std::map<MemberId, std::vector<uint32_t>> asked;
  for (const state::Outgoing& out : outgoing_) {
    const MemberId target = out.target.member;
    if (out.local || asked.contains(target)) continue;
    const auto note = notes_.Find(target, state::NoteKind::kPull);
    if (!note) continue;
    absl::StatusOr<std::vector<uint32_t>> tensors = state::DecodeTensors(*note);
    if (!tensors.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", target, ": ", std::string(tensors.status().message())));
    }
    asked[target] = *std::move(tensors);
  }
  std::erase_if(outgoing_, [&](const state::Outgoing& out) {
    const auto tensors = asked.find(out.target.member);
    if (out.local || tensors == asked.end()) return false;
    const auto& list = tensors->second;
    if (std::find(list.begin(), list.end(), out.tensor) == list.end()) return false;
    pulled_[out.target.member].push_back(out);
    bytes_pulled_ += out.end - out.begin;
    return true;
  });
  return absl::OkStatus();
}

absl::Status Reshape::TellReady(uint64_t step, Time deadline) {
  for (const auto& [target, copies] : pulled_) {
    ByteWriter version;
    version.Put(step);
    const absl::Status s =
        outflow_->SendNote(copies[0].target, state::NoteKind::kReady, version.Take(), deadline);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Reshape::TellContents(state::NoteKind kind, Time deadline) {
  for (const auto& [target, copies] : pulled_) {
    std::vector<state::CopyContent> contents;
    for (const state::Outgoing& out : copies) {
      const bool constant = shapes_[out.tensor].change == state::Change::kConstant;
      if (constant != (kind == state::NoteKind::kContents)) continue;
      const absl::StatusOr<uint64_t> content = outflow_->Content(out);
      if (!content.ok()) return content.status();
      contents.push_back({out.tensor, out.begin, *content});
    }
    if (contents.empty()) continue;
    const absl::Status s =
        outflow_->SendNote(copies[0].target, kind, state::EncodeContents(contents), deadline);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

std::vector<state::Outgoing> Reshape::Select(bool constant) const {
  std::vector<state::Outgoing> out;
  for (const state::Outgoing& o : outgoing_) {
    if ((shapes_[o.tensor].change == state::Change::kConstant) == constant) out.push_back(o);
  }
  return out;
}

absl::Status Reshape::StreamChange(uint64_t step) {
  if (!state_.joining) {
    while (!context_.wait_version(step, Now() + milliseconds(50))) {
      if (Cancelled()) return absl::CancelledError("the transition was aborted");
    }
  }
  // The update before the boundary has returned: constant state does not change from here on.
  const Time begin = Now();
  // A joiner stands from the start; the leader judges the duration of the others' steps.
  const Duration patience = state_.joining ? kLongest : context_.boundary;
  const Time deadline = begin + patience;
  absl::Status status = ServePulls();
  if (status.ok()) status = TellReady(step, deadline);
  if (status.ok()) status = pull_->Fetch(deadline);
  if (status.ok()) status = outflow_->Send(Select(true), step, true, deadline);
  const Time sent = Now();
  if (!WaitFor(&finish_)) return absl::CancelledError("the transition was aborted");
  const Time finish = Now();
  if (!status.ok()) return status;
  // The data that other members wait for goes first.
  status = TellContents(state::NoteKind::kLate, Now() + patience);
  if (status.ok()) status = outflow_->Send(Select(false), step, false, Now() + patience);
  if (status.ok()) status = TellContents(state::NoteKind::kContents, Now() + patience);
  if (status.ok()) status = outflow_->Recheck();
  const Time checked = Now();
  if (status.ok()) status = FinishWire(patience);
  if (status.ok()) status = pull_->Check(Now() + patience);
  REWIRE_DEBUG(
      "epoch %llu: %.1f ms for constant state, boundary after %.1f ms more, %.1f ms to "
      "check it, %.1f ms for the rest",
      static_cast<unsigned long long>(epoch()), Milliseconds(sent - begin),
      Milliseconds(finish - sent), Milliseconds(checked - finish), Milliseconds(Now() - checked));
  return status;
}

absl::Status Reshape::StreamRestore() {
  absl::StatusOr<state::Plan> plan =
      state::PlanRestore(shapes_, request_.from, request_.to, sources_);
  if (!plan.ok()) return plan.status();
  if (absl::Status s = Resolve(*plan); !s.ok()) return s;
  if (absl::Status s = OpenStream(); !s.ok()) return s;
  absl::Status status = outflow_->Send(outgoing_, version_, false, Now() + context_.boundary);
  return status.ok() ? FinishWire(context_.boundary) : status;
}

absl::Status Reshape::FinishWire(Duration within) {
  const Time deadline = Now() + within;
  if (absl::Status s = outflow_->WaitPlaced(deadline); !s.ok()) return s;
  return intake_->Wait(deadline);
}

}  // namespace rewire::elastic
