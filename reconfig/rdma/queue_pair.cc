// The texts of completions; see queue_pair.h. Pure.
#include "reconfig/rdma/queue_pair.h"

namespace rewire::rdma {

std::string_view Name(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kSuccess:
      return "success";
    case CompletionStatus::kLocalLength:
      return "local length error";
    case CompletionStatus::kLocalQueuePair:
      return "local queue pair error";
    case CompletionStatus::kLocalProtection:
      return "local protection error";
    case CompletionStatus::kFlushed:
      return "flushed";
    case CompletionStatus::kBadResponse:
      return "bad response";
    case CompletionStatus::kLocalAccess:
      return "local access error";
    case CompletionStatus::kRemoteInvalidRequest:
      return "remote invalid request";
    case CompletionStatus::kRemoteAccess:
      return "remote access error";
    case CompletionStatus::kRemoteOperation:
      return "remote operation error";
    case CompletionStatus::kRetryExceeded:
      return "transport retries exceeded";
    case CompletionStatus::kRnrRetryExceeded:
      return "receiver-not-ready retries exceeded";
    case CompletionStatus::kRemoteAborted:
      return "remote aborted";
    case CompletionStatus::kFatal:
      return "fatal error";
    case CompletionStatus::kResponseTimeout:
      return "response timeout";
    case CompletionStatus::kOther:
      return "other error";
  }
  return "unknown status";
}

}  // namespace rewire::rdma
