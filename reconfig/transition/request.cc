// From requests to target worlds; see request.h. Pure functions, callable from any thread.
#include "reconfig/transition/request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rewire {
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
        return absl::InvalidArgumentError("a world cannot be resized to 0 members");
      }
      if (request.size > max_members) {
        return absl::InvalidArgumentError(absl::StrCat("resize to ", request.size,
                                                       " is beyond what exists: at most ",
                                                       max_members, " members can run here"));
      }
      while (members.size() > request.size) members.pop_back();
      while (members.size() < request.size) members.push_back((*next_member)++);
      return members;
    case RequestKind::kDrain: {
      if (absl::Status status = CheckNamed(request.members, members); !status.ok()) return status;
      if (request.members.size() == members.size()) {
        return absl::InvalidArgumentError("a drain of all members would leave nobody");
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

}  // namespace rewire
