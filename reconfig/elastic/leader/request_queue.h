// The requests that the leader has accepted: those that wait, and the results of the others. Part
// of the leader. Pure; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/elastic/leader/request.h"
#include "reconfig/world/world.h"

namespace rewire::elastic {

enum class RequestState : uint8_t { kUnknown, kWaiting, kRunning, kDone, kFailed };
// The text of a request that is done because the world was as requested already.
inline constexpr char kNothingToChange[] = "nothing to change";

struct RequestStatus {
  RequestState state = RequestState::kUnknown;
  std::string text;  // why the request failed or what it waits for
};

// The target of the next transition, made of the waiting requests.
struct MergedRequests {
  std::vector<MemberId> target;  // in slot order
  MemberId next_member = 0;
  std::vector<uint64_t> requests;  // that the transition fulfils
  std::string what;                // "resize to 4; drain 2"
  bool only_rebuild = true;
  std::vector<std::string> failures;  // of requests that were refused now, with their reasons
};

class RequestQueue {
 public:
  // Appends a valid request and returns its id. world_size: the world's present size. gone_by: a
  // drain's deadline.
  uint64_t Add(const ChangeRequest& change, uint32_t world_size, std::optional<Time> gone_by);
  // Returns requests to the front of the queue.
  void PutBack(const std::vector<uint64_t>& ids);
  // Takes the requests for the next transition (those with a deadline, if there are any) and merges
  // them. Sets the states of requests that are fulfilled already or cannot be fulfilled.
  MergedRequests TakeMerged(const WorldRecord& record, uint32_t max_members);
  void Resolve(const std::vector<uint64_t>& ids, RequestState state, const std::string& text);
  // Fails every waiting request.
  void FailWaiting(const std::string& reason);

  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  [[nodiscard]] RequestStatus StatusOf(uint64_t id) const;
  // Returns the members after the waiting requests, as far as these can be fulfilled. Takes new ids
  // from *next_member.
  [[nodiscard]] std::vector<MemberId> AfterWaiting(std::vector<MemberId> members,
                                                   uint32_t max_members,
                                                   MemberId* next_member) const;

  // ---- drains with a deadline
  // Returns those of the waiting requests and `running` that have a deadline.
  [[nodiscard]] std::vector<uint64_t> WithDeadline(const std::vector<uint64_t>& running) const;
  // Returns the earliest deadline of these requests.
  [[nodiscard]] std::optional<Time> EarliestDeadline(const std::vector<uint64_t>& ids) const;
  // Returns the request's members among `alive`.
  [[nodiscard]] std::vector<MemberId> NotGone(uint64_t id, std::vector<MemberId> alive) const;
  [[nodiscard]] Time gone_by(uint64_t id) const { return *requests_.at(id).gone_by; }
  // nullopt: the deadline has come.
  void SetGoneBy(uint64_t id, std::optional<Time> at) { requests_.at(id).gone_by = at; }
  [[nodiscard]] const ChangeRequest& change(uint64_t id) const { return requests_.at(id).change; }

 private:
  struct Request {
    ChangeRequest change;
    std::optional<Time> gone_by;  // a drain's deadline, until the deadline has come
    uint32_t world_size = 0;      // the world's size when the request arrived
    uint32_t attempts = 0;
    RequestStatus status;
  };
  // Fails each waiting resize that a later one follows. To carry out both would end members that
  // the later size keeps, and start new processes in their place.
  void DropOutdated();
  std::vector<uint64_t> TakeNext();
  // Merges one request. Returns its failure; empty: none.
  std::string Merge(uint64_t id, const WorldRecord& record, uint32_t max_members,
                    MergedRequests* merged);

  std::vector<uint64_t> waiting_;
  std::map<uint64_t, Request> requests_;
  uint64_t next_id_ = 1;
};

}  // namespace rewire::elastic
