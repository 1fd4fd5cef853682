// Unique ids by name; see names.h.
#include "reconfig/elastic/participant/names.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/state/stream/ask_name.h"
#include "reconfig/world/identity.h"

namespace rewire::elastic {

void Names::SetKey(const Key& key) {
  MutexLock lock(&mutex_);
  key_ = key;
}

Key Names::key() const {
  MutexLock lock(&mutex_);
  return key_;
}

absl::StatusOr<std::optional<std::string>> Names::Ask(const WorldMember& member,
                                                      std::string_view name,
                                                      Duration within) const {
  return state::AskName(member, key(), self_, name, Now() + within);
}

std::string Names::NodeOf(const WorldMember& member) const {
  // The timeout is short, because a thread that must stop at once waits for this answer.
  const auto answer = Ask(member, kNodeName, milliseconds(200));
  return answer.ok() ? answer->value_or("") : "";
}

absl::StatusOr<UniqueIdBytes> Names::Resolve(const std::string& name,
                                             const std::vector<WorldMember>& asked,
                                             const Minter& mint, Time deadline,
                                             const Ended& ended) {
  if (auto known = Find(name)) return *known;
  if (mint) {
    absl::StatusOr<UniqueIdBytes> id = mint();
    if (!id.ok()) return id;
    id->resize(NCCL_UNIQUE_ID_BYTES);
    Publish(name, *id);
    return id;
  }
  const Key key = this->key();
  absl::Status last = absl::UnavailableError("no member was asked");
  while (Now() < deadline) {
    for (const WorldMember& m : asked) {
      if (m.data_address.empty()) continue;  // this member joins as well
      auto answer = state::AskName(m, key, self_, name, std::min(deadline, Now() + seconds(2)));
      if (answer.ok() && *answer && (*answer)->size() == NCCL_UNIQUE_ID_BYTES) {
        Publish(name, **answer);
        return **answer;
      }
      if (!answer.ok()) last = answer.status();
    }
    MutexLock lock(&mutex_);
    if (reason_.empty()) closed_.WaitUntil(&mutex_, Now() + milliseconds(10));
    if (!reason_.empty()) return absl::DataLossError(reason_);
    if (absl::Status ended_now = ended(); !ended_now.ok()) return ended_now;
  }
  const bool of_program = name.front() != '\0';
  return absl::DeadlineExceededError(absl::StrCat("unique id for '",
                                                  name.substr(of_program ? 0 : 1),
                                                  "': no member had the id within REWIRE_BUILD_MS "
                                                  "(last: ",
                                                  std::string(last.message()), ")"));
}

void Names::Close(const std::string& reason) {
  MutexLock lock(&mutex_);
  if (reason_.empty()) reason_ = reason;
  closed_.NotifyAll();
}

std::optional<std::string> Names::Find(std::string_view name) const {
  MutexLock lock(&mutex_);
  const auto it = values_.find(name);
  if (it == values_.end()) return std::nullopt;
  return it->second;
}

void Names::Publish(const std::string& name, std::string value) {
  MutexLock lock(&mutex_);
  values_.insert_or_assign(name, std::move(value));
}

void Names::Forget(std::string_view prefix) {
  MutexLock lock(&mutex_);
  std::erase_if(values_, [&](const auto& entry) { return entry.first.starts_with(prefix); });
}

bool Names::GaveOut(const CommunicatorId& communicator) const {
  MutexLock lock(&mutex_);
  return std::any_of(values_.begin(), values_.end(), [&](const auto& entry) {
    return entry.second.size() == NCCL_UNIQUE_ID_BYTES &&
           IdentityOfUniqueId(entry.second.data()) == communicator;
  });
}

}  // namespace rewire::elastic
