// Converts requests and completions, and calls the verbs; see verbs_queues.h.
#include "reconfig/rdma/verbs_queues.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"

namespace rewire::rdma {
namespace {

// The completions that one call takes, and the requests that one call posts.
constexpr size_t kPolled = 32;
constexpr size_t kBatch = 16;
constexpr uint32_t kPsnMask = 0xffffff;

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

// Most providers return the error number; a few return -1 and set errno.
int ErrorOf(int result) { return result > 0 ? result : errno; }

// Converts a packet size of a path to the verbs' number; nothing for an invalid size.
std::optional<ibv_mtu> MtuOf(uint32_t bytes) {
  for (int code = IBV_MTU_256; code <= IBV_MTU_4096; ++code) {
    if (128U << code == bytes) return static_cast<ibv_mtu>(code);
  }
  return std::nullopt;
}

ibv_wr_opcode OpcodeOf(Operation operation) {
  switch (operation) {
    case Operation::kWrite:
      return IBV_WR_RDMA_WRITE;
    case Operation::kWriteWithImmediate:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Operation::kRead:
      return IBV_WR_RDMA_READ;
    case Operation::kSend:
      return IBV_WR_SEND;
  }
  return IBV_WR_SEND;
}

}  // namespace

VerbsCompletionQueue::~VerbsCompletionQueue() {
  if (const int error = device_->library().DestroyCq(cq_); error != 0) {
    REWIRE_WARN("rdma: %s", device_->Error("ibv_destroy_cq", error).ToString().c_str());
  }
}

absl::StatusOr<size_t> VerbsCompletionQueue::Poll(std::span<Completion> out) {
  ibv_wc batch[kPolled];
  size_t polled = 0;
  while (polled < out.size()) {
    const size_t want = std::min(kPolled, out.size() - polled);
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

absl::StatusOr<std::unique_ptr<QueuePair>> VerbsQueuePair::Create(
    std::shared_ptr<VerbsDevice> device, ibv_pd* pd, const QueuePairOptions& options) {
  const auto* send = dynamic_cast<VerbsCompletionQueue*>(options.send_completions.get());
  const auto* receive = dynamic_cast<VerbsCompletionQueue*>(options.receive_completions.get());
  if (send == nullptr || receive == nullptr) return device->Error("ibv_create_qp", EINVAL);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = send->cq();
  attributes.recv_cq = receive->cq();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = options.max_send;
  attributes.cap.max_recv_wr = options.max_receive;
  attributes.cap.max_send_sge = options.max_segments;
  attributes.cap.max_recv_sge = options.max_segments;
  attributes.cap.max_inline_data = options.max_inline;
  ibv_qp* qp = device->library().CreateQp(pd, &attributes);
  if (qp == nullptr) return device->Error("ibv_create_qp", errno);
  return std::unique_ptr<QueuePair>(
      new VerbsQueuePair(std::move(device), options, qp, attributes.cap.max_inline_data));
}

VerbsQueuePair::VerbsQueuePair(std::shared_ptr<VerbsDevice> device, const QueuePairOptions& options,
                               ibv_qp* qp, uint32_t max_inline)
    : device_(std::move(device)),
      send_completions_(options.send_completions),
      receive_completions_(options.receive_completions),
      qp_(qp),
      max_inline_(max_inline),
      max_segments_(options.max_segments),
      sends_(kBatch),
      receives_(kBatch),
      sges_(kBatch * options.max_segments) {}

VerbsQueuePair::~VerbsQueuePair() {
  if (const int error = device_->library().DestroyQp(qp_); error != 0) {
    REWIRE_WARN("rdma: %s", device_->Error("ibv_destroy_qp", error).ToString().c_str());
  }
}

absl::StatusOr<QueuePairState> VerbsQueuePair::QueryState() {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  const int error = device_->library().QueryQp(qp_, &attributes, IBV_QP_STATE, &init);
  if (error != 0) return device_->Error("ibv_query_qp", error);
  switch (attributes.qp_state) {
    case IBV_QPS_RESET:
      return QueuePairState::kReset;
    case IBV_QPS_INIT:
      return QueuePairState::kInit;
    case IBV_QPS_RTR:
      return QueuePairState::kReadyToReceive;
    case IBV_QPS_RTS:
      return QueuePairState::kReadyToSend;
    default:
      return QueuePairState::kError;
  }
}

absl::Status VerbsQueuePair::Modify(ibv_qp_attr* attributes, int mask, std::string_view to) {
  const int error = device_->library().ModifyQp(qp_, attributes, mask | IBV_QP_STATE);
  if (error == 0) return absl::OkStatus();
  return device_->Error(absl::StrCat("ibv_modify_qp to ", std::string(to)), ErrorOf(error));
}

absl::Status VerbsQueuePair::ToInit(const InitAttributes& attributes) {
  ibv_qp_attr raw{};
  raw.qp_state = IBV_QPS_INIT;
  raw.port_num = port_ = attributes.port;
  raw.pkey_index = attributes.pkey_index;
  raw.qp_access_flags = static_cast<unsigned int>(AccessFlags(attributes.access));
  return Modify(&raw, IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS, "INIT");
}

absl::Status VerbsQueuePair::ToReadyToReceive(const ReceiveAttributes& attributes) {
  const std::optional<ibv_mtu> mtu = MtuOf(attributes.mtu);
  if (!mtu)
    return absl::InvalidArgumentError(absl::StrCat("ibv_modify_qp: mtu=", attributes.mtu,
                                                   ": must be 256, 512, 1024, 2048 or 4096"));
  ibv_qp_attr raw{};
  raw.qp_state = IBV_QPS_RTR;
  raw.path_mtu = *mtu;
  raw.dest_qp_num = attributes.peer_number;
  raw.rq_psn = attributes.first_psn & kPsnMask;
  raw.max_dest_rd_atomic = attributes.max_reads;
  raw.min_rnr_timer = attributes.min_rnr_timer;
  raw.ah_attr.port_num = port_;
  raw.ah_attr.sl = attributes.service_level;
  raw.ah_attr.dlid = attributes.peer_lid;
  if (attributes.peer_gid) {
    raw.ah_attr.is_global = 1;
    std::copy(attributes.peer_gid->bytes.begin(), attributes.peer_gid->bytes.end(),
              std::begin(raw.ah_attr.grh.dgid.raw));
    raw.ah_attr.grh.sgid_index = attributes.gid_index;
    raw.ah_attr.grh.hop_limit = attributes.hop_limit;
    raw.ah_attr.grh.traffic_class = attributes.traffic_class;
  }
  return Modify(&raw,
                IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                "RTR");
}

absl::Status VerbsQueuePair::ToReadyToSend(const SendAttributes& attributes) {
  ibv_qp_attr raw{};
  raw.qp_state = IBV_QPS_RTS;
  raw.sq_psn = attributes.first_psn & kPsnMask;
  raw.timeout = attributes.timeout;
  raw.retry_cnt = attributes.retries;
  raw.rnr_retry = attributes.rnr_retries;
  raw.max_rd_atomic = attributes.max_reads;
  return Modify(&raw,
                IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_MAX_QP_RD_ATOMIC,
                "RTS");
}

absl::Status VerbsQueuePair::ToError() {
  ibv_qp_attr raw{};
  raw.qp_state = IBV_QPS_ERR;
  return Modify(&raw, 0, "ERR");
}

absl::Status VerbsQueuePair::ToReset() {
  ibv_qp_attr raw{};
  raw.qp_state = IBV_QPS_RESET;
  return Modify(&raw, 0, "RESET");
}

absl::StatusOr<Ece> VerbsQueuePair::QueryEce() {
  if (device_->library().QueryEce == nullptr) return device_->Error("ibv_query_ece", EOPNOTSUPP);
  ibv_ece raw{};
  const int error = device_->library().QueryEce(qp_, &raw);
  if (error != 0) return device_->Error("ibv_query_ece", error);
  return Ece{raw.vendor_id, raw.options};
}

absl::Status VerbsQueuePair::SetEce(const Ece& ece) {
  if (device_->library().SetEce == nullptr) return device_->Error("ibv_set_ece", EOPNOTSUPP);
  ibv_ece raw{};
  raw.vendor_id = ece.vendor;
  raw.options = ece.options;
  const int error = device_->library().SetEce(qp_, &raw);
  return error == 0 ? absl::OkStatus() : device_->Error("ibv_set_ece", error);
}

ibv_sge* VerbsQueuePair::Segments(size_t i, std::span<const Segment> segments) {
  if (segments.size() > max_segments_) return nullptr;
  ibv_sge* const to = sges_.data() + i * max_segments_;
  std::transform(segments.begin(), segments.end(), to, [](const Segment& segment) {
    return ibv_sge{segment.address, segment.bytes, segment.lkey};
  });
  return to;
}

PostResult VerbsQueuePair::PostSend(std::span<const SendWork> chain) {
  size_t posted = 0;
  while (posted < chain.size()) {
    const auto batch = chain.subspan(posted, std::min(kBatch, chain.size() - posted));
    for (size_t i = 0; i < batch.size(); ++i) {
      const SendWork& work = batch[i];
      ibv_send_wr& wr = sends_[i];
      wr.wr_id = work.id;
      wr.next = i + 1 < batch.size() ? &sends_[i + 1] : nullptr;
      wr.sg_list = Segments(i, work.segments);
      if (wr.sg_list == nullptr) return {device_->Error("ibv_post_send", EINVAL), posted};
      wr.num_sge = static_cast<int>(work.segments.size());
      wr.opcode = OpcodeOf(work.operation);
      wr.send_flags = 0;
      if (work.signalled) wr.send_flags |= IBV_SEND_SIGNALED;
      if (work.inlined) wr.send_flags |= IBV_SEND_INLINE;
      wr.imm_data = htonl(work.immediate);
      wr.wr.rdma.remote_addr = work.remote_address;
      wr.wr.rdma.rkey = work.rkey;
    }
    ibv_send_wr* bad = nullptr;
    if (const int result = ibv_post_send(qp_, sends_.data(), &bad); result != 0) {
      const int error = ErrorOf(result);
      if (bad != nullptr) posted += static_cast<size_t>(bad - sends_.data());
      return {device_->Error("ibv_post_send", error), posted};
    }
    posted += batch.size();
  }
  return {absl::OkStatus(), posted};
}

PostResult VerbsQueuePair::PostReceive(std::span<const ReceiveWork> chain) {
  size_t posted = 0;
  while (posted < chain.size()) {
    const auto batch = chain.subspan(posted, std::min(kBatch, chain.size() - posted));
    for (size_t i = 0; i < batch.size(); ++i) {
      ibv_recv_wr& wr = receives_[i];
      wr.wr_id = batch[i].id;
      wr.next = i + 1 < batch.size() ? &receives_[i + 1] : nullptr;
      wr.sg_list = Segments(i, batch[i].segments);
      if (wr.sg_list == nullptr) return {device_->Error("ibv_post_recv", EINVAL), posted};
      wr.num_sge = static_cast<int>(batch[i].segments.size());
    }
    ibv_recv_wr* bad = nullptr;
    if (const int result = ibv_post_recv(qp_, receives_.data(), &bad); result != 0) {
      const int error = ErrorOf(result);
      if (bad != nullptr) posted += static_cast<size_t>(bad - receives_.data());
      return {device_->Error("ibv_post_recv", error), posted};
    }
    posted += batch.size();
  }
  return {absl::OkStatus(), posted};
}

}  // namespace rewire::rdma
