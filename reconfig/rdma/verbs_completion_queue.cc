#include "reconfig/rdma/verbs_completion_queue.h"

#include <arpa/inet.h>

#include <algorithm>

#include "reconfig/base/log.h"

namespace rewire::rdma {
namespace {

constexpr size_t kBatch = 32;

CompletionStatus StatusOf(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return CompletionStatus::kSuccess;
    case IBV_WC_LOC_LEN_ERR:
      return CompletionStatus::kLocalLength;
    case IBV_WC_LOC_QP_OP_ERR:
      return CompletionStatus::kLocalQueuePair;
    case IBV_WC_LOC_PROT_ERR:
      return CompletionStatus::kLocalProtection;
    case IBV_WC_WR_FLUSH_ERR:
      return CompletionStatus::kFlushed;
    case IBV_WC_BAD_RESP_ERR:
      return CompletionStatus::kBadResponse;
    case IBV_WC_LOC_ACCESS_ERR:
      return CompletionStatus::kLocalAccess;
    case IBV_WC_REM_INV_REQ_ERR:
      return CompletionStatus::kRemoteInvalidRequest;
    case IBV_WC_REM_ACCESS_ERR:
      return CompletionStatus::kRemoteAccess;
    case IBV_WC_REM_OP_ERR:
      return CompletionStatus::kRemoteOperation;
    case IBV_WC_RETRY_EXC_ERR:
      return CompletionStatus::kRetryExceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return CompletionStatus::kRnrRetryExceeded;
    case IBV_WC_REM_ABORT_ERR:
      return CompletionStatus::kRemoteAborted;
    case IBV_WC_FATAL_ERR:
      return CompletionStatus::kFatal;
    case IBV_WC_RESP_TIMEOUT_ERR:
      return CompletionStatus::kResponseTimeout;
    default:
      return CompletionStatus::kOther;
  }
}

CompletionKind KindOf(ibv_wc_opcode opcode) {
  switch (opcode) {
    case IBV_WC_SEND:
      return CompletionKind::kSend;
    case IBV_WC_RDMA_READ:
      return CompletionKind::kRead;
    case IBV_WC_RECV:
      return CompletionKind::kReceive;
    case IBV_WC_RECV_RDMA_WITH_IMM:
      return CompletionKind::kReceiveImmediate;
    default:
      return CompletionKind::kWrite;
  }
}

Completion CompletionOf(const ibv_wc& wc) {
  Completion completion;
  completion.id = wc.wr_id;
  completion.status = StatusOf(wc.status);
  completion.queue_pair = wc.qp_num;
  completion.vendor_error = wc.vendor_err;
  if (wc.status != IBV_WC_SUCCESS) return completion;
  completion.kind = KindOf(wc.opcode);
  completion.bytes = wc.byte_len;
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) completion.immediate = ntohl(wc.imm_data);
  return completion;
}

}  // namespace

VerbsCompletionQueue::~VerbsCompletionQueue() {
  if (const int error = device_->library().DestroyCq(cq_); error != 0) {
    REWIRE_WARN("rdma: %s", device_->Error("ibv_destroy_cq", error).ToString().c_str());
  }
}

absl::StatusOr<size_t> VerbsCompletionQueue::Poll(std::span<Completion> out) {
  ibv_wc batch[kBatch];
  size_t polled = 0;
  while (polled < out.size()) {
    const size_t want = std::min(kBatch, out.size() - polled);
    const int count = ibv_poll_cq(cq_, static_cast<int>(want), batch);
    if (count < 0) {
      if (polled > 0) return polled;
      return device_->Error("ibv_poll_cq", -count);
    }
    for (int i = 0; i < count; ++i) out[polled++] = CompletionOf(batch[i]);
    if (static_cast<size_t>(count) < want) break;
  }
  return polled;
}

}  // namespace rewire::rdma
