// Computes target worlds from requests; see request.h. Pure functions; thread-safe.
#include "reconfig/elastic/leader/request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rewire::elastic {
namespace {

absl::Status CheckNamed(const std::vector<MemberId>& named, const std::vector<MemberId>& members) {
  if (named.empty()) return absl::InvalidArgumentError("no member is named");
  for (size_t i = 0; i < named.size(); ++i) {
    if (std::find(members.begin(), members.end(), named[i]) == members.end()) {
      return absl::NotFoundError(absl::StrCat("member ", named[i], " is not in the world; it has ",
                                              absl::StrJoin(members, ", ")));
    }
    if (std::find(named.begin(), named.begin() + static_cast<ptrdiff_t>(i), named[i]) !=
        named.begin() + static_cast<ptrdiff_t>(i)) {
      return absl::InvalidArgumentError(absl::StrCat("member ", named[i], " is named twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string Describe(const ChangeRequest& request) {
  std::string text;
  switch (request.kind) {
    case RequestKind::kResize:
      text = absl::StrCat("resize to ", request.size);
      break;
    case RequestKind::kDrain:
      text = absl::StrCat("drain ", absl::StrJoin(request.members, " "));
      break;
    case RequestKind::kReplace:
      text = absl::StrCat("replace ", absl::StrJoin(request.members, " "));
      break;
    case RequestKind::kRebuild:
      text = "rebuild";
      break;
  }
  if (request.within) {
    absl::StrAppend(&text, " within ",
                    std::chrono::duration_cast<milliseconds>(*request.within).count(), " ms");
  }
  if (!request.reason.empty()) absl::StrAppend(&text, " (", request.reason, ")");
  return text;
}

absl::StatusOr<std::vector<MemberId>> ApplyRequest(const ChangeRequest& request,
                                                   std::vector<MemberId> members,
                                                   uint32_t max_members, MemberId* next_member) {
  switch (request.kind) {
    case RequestKind::kResize:
      if (request.size == 0) {
        return absl::InvalidArgumentError("resize: N=0 members: must be at least 1");
      }
      if (request.size > max_members) {
        return absl::InvalidArgumentError(absl::StrCat(
            "resize to ", request.size, ": must be at most ", max_members, " members (--max)"));
      }
      while (members.size() > request.size) {
        members.erase(std::max_element(members.begin(), members.end()));
      }
      while (members.size() < request.size) members.push_back((*next_member)++);
      return members;
    case RequestKind::kDrain: {
      if (absl::Status status = CheckNamed(request.members, members); !status.ok()) return status;
      if (request.members.size() == members.size()) {
        return absl::InvalidArgumentError("drain: at least one member of the world must remain");
      }
      std::erase_if(members, [&](MemberId m) {
        return std::find(request.members.begin(), request.members.end(), m) !=
               request.members.end();
      });
      return members;
    }
    case RequestKind::kReplace: {
      if (absl::Status status = CheckNamed(request.members, members); !status.ok()) return status;
      if (request.members.size() != 1) {
        return absl::InvalidArgumentError("replace takes exactly one member");
      }
      *std::find(members.begin(), members.end(), request.members[0]) = (*next_member)++;
      return members;
    }
    case RequestKind::kRebuild:
      return members;
  }
  return absl::InvalidArgumentError("an unknown kind of request");
}

std::vector<MemberId> OrderSlots(const std::vector<MemberId>& from,
                                 const std::vector<MemberId>& members) {
  std::vector<MemberId> fresh;
  size_t stay = 0;
  for (MemberId m : members) {
    if (std::find(from.begin(), from.end(), m) == from.end()) {
      fresh.push_back(m);
    } else {
      ++stay;
    }
  }
  // Shares in units of 1 / (n * m): slot s of n has [s * m, (s + 1) * m).
  const size_t n = from.size();
  const size_t m = members.size();
  const auto overlap = [&](size_t old_slot, size_t new_slot) {
    const size_t begin = std::max(old_slot * m, new_slot * n);
    const size_t end = std::min((old_slot + 1) * m, (new_slot + 1) * n);
    return end > begin ? end - begin : 0;
  };
  std::vector<MemberId> order;
  auto next_fresh = fresh.begin();
  for (size_t old_slot = 0; old_slot < n; ++old_slot) {
    if (std::find(members.begin(), members.end(), from[old_slot]) == members.end()) continue;
    const size_t last = m - stay--;
    size_t best = order.size();
    for (size_t slot = best; slot <= last; ++slot) {
      if (overlap(old_slot, slot) > overlap(old_slot, best)) best = slot;
    }
    while (order.size() < best) order.push_back(*next_fresh++);
    order.push_back(from[old_slot]);
  }
  order.insert(order.end(), next_fresh, fresh.end());
  return order;
}

}  // namespace rewire::elastic
