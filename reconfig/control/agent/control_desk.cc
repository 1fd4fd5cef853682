// Answers commands; see control_desk.h. Owned by the agent's thread.
#include "reconfig/control/agent/control_desk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/agent/control_messages.h"
#include "reconfig/control/agent/job_json.h"

namespace rewire::control {
namespace {

using nlohmann::json;

// A null answer: the real answer is sent later.
const json kLater = nullptr;

}  // namespace

ControlDesk::ControlDesk(std::string job, const elastic::Leader* leader, const TransitionLog* log,
                         Metrics* metrics, Connections* connections, Submit submit, Status status)
    : job_(std::move(job)),
      leader_(leader),
      log_(log),
      metrics_(metrics),
      connections_(connections),
      submit_(std::move(submit)),
      status_(std::move(status)) {}

void ControlDesk::OnCommand(Time now, Connections::Id id, const json& command) {
  const auto found = command.find("command");
  const std::string name =
      found != command.end() && found->is_string() ? found->get<std::string>() : "";
  absl::StatusOr<json> answer = Answer(now, id, name, command);
  if (IsChange(name)) metrics_->OnRequest(name, answer.ok());
  if (!answer.ok()) answer = ControlError(std::string(answer.status().message()));
  if (*answer != kLater) connections_->Send(id, EncodeControl(*answer));
}

absl::StatusOr<json> ControlDesk::Answer(Time now, Connections::Id id, const std::string& name,
                                         const json& command) {
  if (name == "status") return status_();
  if (name == "metrics") {
    metrics_->Set(*leader_, *connections_, now);
    return json{{"ok", true}, {"text", metrics_->Text()}};
  }
  if (name == "trace") {
    REWIRE_ASSIGN_OR_RETURN(const auto epoch, NumberField(command, "epoch", 1, UINT64_MAX));
    const TransitionEntry* entry = log_->Find(epoch);
    if (entry == nullptr) {
      return absl::NotFoundError(
          epoch ? absl::StrCat("trace: epoch=", *epoch, ": not kept (the agent keeps the last ",
                               TransitionLog::kKept, " transitions since its start)")
                : "trace: there was no transition since the agent started");
    }
    return json{{"ok", true}, {"epoch", entry->to}, {"trace", TraceJson(*entry, job_, now)}};
  }
  if (name == "wait") {
    REWIRE_RETURN_IF_ERROR(Wait(now, id, command));
    return kLater;
  }
  if (IsChange(name)) {
    REWIRE_ASSIGN_OR_RETURN(const elastic::ChangeRequest change, ParseChange(name, command));
    REWIRE_RETURN_IF_ERROR(Change(now, id, change, command));
    return kLater;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown command '", name, "'"));
}

absl::Status ControlDesk::Wait(Time now, Connections::Id id, const json& command) {
  REWIRE_ASSIGN_OR_RETURN(const auto epoch, NumberField(command, "epoch", 1, UINT64_MAX));
  REWIRE_ASSIGN_OR_RETURN(const auto timeout, NumberField(command, "timeout_ms", 0, 864000000));
  waiting_.push_back(
      {id, std::nullopt, epoch, false, now + milliseconds(timeout.value_or(600000))});
  return absl::OkStatus();
}

absl::Status ControlDesk::Change(Time now, Connections::Id id, const elastic::ChangeRequest& change,
                                 const json& command) {
  REWIRE_ASSIGN_OR_RETURN(const auto timeout, NumberField(command, "timeout_ms", 0, 864000000));
  REWIRE_ASSIGN_OR_RETURN(const uint64_t request, submit_(change));
  connections_->Send(id, EncodeControl({{"progress", "accepted: " + Describe(change)},
                                        {"request", request},
                                        {"epoch", leader_->record().world.epoch}}));
  waiting_.push_back(
      {id, request, std::nullopt, true, now + milliseconds(timeout.value_or(600000))});
  return absl::OkStatus();
}

void ControlDesk::OnNote(const elastic::Note& note) {
  for (const Waiting& w : waiting_) {
    if (!w.progress || !w.request) continue;
    const bool about =
        std::find(note.requests.begin(), note.requests.end(), *w.request) != note.requests.end();
    if (!about) continue;
    json progress = {{"progress", note.text},
                     {"phase", std::string(elastic::PhaseName(note.phase))},
                     {"kind", std::string(KindName(note.transition_kind))},
                     {"epoch", note.epoch},
                     {"elapsed_ms", ToMilliseconds(note.elapsed)}};
    connections_->Send(w.connection, EncodeControl(progress));
  }
}

json ControlDesk::World() const {
  json members = json::array();
  for (const WorldMember& m : leader_->record().world.members) members.push_back(m.member);
  return members;
}

std::optional<json> ControlDesk::Over(const Waiting& w, Time now) const {
  const json done = {{"ok", true}, {"epoch", leader_->record().world.epoch}, {"world", World()}};
  std::string missing;
  if (w.request) {
    const elastic::RequestStatus status = leader_->StatusOf(*w.request);
    if (status.state == elastic::RequestState::kFailed) return ControlError(status.text);
    if (status.state == elastic::RequestState::kUnknown)
      return ControlError("the request is unknown: the agent restarted");
    if (status.state == elastic::RequestState::kDone) {
      json out = done;
      const TransitionEntry* const entry = status.text == elastic::kNothingToChange
                                               ? nullptr
                                               : log_->Find(leader_->record().world.epoch);
      out["transition"] = entry == nullptr ? json() : TransitionStatus(*entry, now);
      return out;
    }
    missing = absl::StrCat("the change has not ended and continues in phase ",
                           std::string(elastic::PhaseName(leader_->phase())),
                           status.text.empty() ? "" : ": ", status.text);
  } else {
    const bool stopped = leader_->phase() == elastic::Phase::kStopped;
    const bool there =
        w.epoch ? leader_->record().world.epoch >= *w.epoch : leader_->steady() || stopped;
    if (there) return status_();
    if (stopped) return ControlError("the job has ended");
    missing = absl::StrCat("the job is in epoch ", leader_->record().world.epoch, ", phase ",
                           std::string(elastic::PhaseName(leader_->phase())));
  }
  if (now < w.deadline) return std::nullopt;
  json out = ControlError("timed out: " + missing);
  out["timeout"] = true;
  return out;
}

void ControlDesk::Settle(Time now) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (const std::optional<json> answer = Over(*it, now)) {
      connections_->Send(it->connection, EncodeControl(*answer));
      it = waiting_.erase(it);
    } else {
      ++it;
    }
  }
}

void ControlDesk::OnClosed(Connections::Id id) {
  std::erase_if(waiting_, [id](const Waiting& w) { return w.connection == id; });
}

std::optional<Time> ControlDesk::NextDeadline() const {
  std::optional<Time> out;
  for (const Waiting& w : waiting_) {
    if (!out || w.deadline < *out) out = w.deadline;
  }
  return out;
}

}  // namespace rewire::control
