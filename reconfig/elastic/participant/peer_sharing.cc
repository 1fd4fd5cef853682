// Copies inside the node; see peer_sharing.h. Owned by the transition's threads.
#include "reconfig/elastic/participant/peer_sharing.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"

namespace rewire::elastic {
namespace {

// The time limit for mapping the memory of one source on this node. A source that exceeds the limit
// sends its bytes over the stream.
constexpr Duration kShare = seconds(5);

}  // namespace

// ---- as a target --------------------------------------------------------------------------------

state::PeerOffer PeerSharing::OfferOf(const WorldMember& source) {
  const Time deadline = Now() + options_.build;
  while (!options_.cancelled() && Now() < deadline) {
    const absl::StatusOr<std::string> answer = options_.ask(source);
    if (!answer.ok()) break;
    // An empty answer means that the source has not published an offer yet.
    if (!answer->empty()) {
      absl::StatusOr<state::PeerOffer> offer = state::DecodePeerOffer(*answer);
      if (!offer.ok()) {
        REWIRE_WARN("member %u: %s", source.member, std::string(offer.status().message()).c_str());
        break;
      }
      if (offer->epoch == options_.epoch) return *std::move(offer);
    }
    options_.pause();
  }
  return {};
}

absl::Status PeerSharing::TakeFromPeers(const World& from,
                                        const std::vector<state::Incoming>& incoming,
                                        state::Intake* intake) {
  if (!options_.peer_copy) return absl::OkStatus();
  std::set<MemberId> sources;
  for (const state::Incoming& in : incoming) {
    if (in.place.part.kind == state::MemoryKind::kDevice) sources.insert(in.source);
  }
  const std::string node = state::NodeIdentity();
  for (const WorldMember& source : from.members) {
    if (!sources.contains(source.member)) continue;
    const state::PeerOffer offer = OfferOf(source);
    if (offer.node.empty() || offer.node != node) continue;
    pull_.TakeFrom(source.member, offer, incoming, Now() + kShare);
  }
  const Time deadline = Now() + options_.build;
  for (const WorldMember& source : from.members) {
    const std::vector<uint32_t> tensors = pull_.TensorsOf(source.member);
    if (tensors.empty()) continue;
    intake->Withdraw(source.member, tensors);
    REWIRE_RETURN_IF_ERROR(outflow_->SendNote(source, state::NoteKind::kPull,
                                              state::EncodeTensors(tensors), deadline));
  }
  // The sources must have the notes before this member reports that it is prepared.
  return outflow_->WaitPlaced(deadline);
}

// ---- as a source --------------------------------------------------------------------------------

void PeerSharing::PublishOffer(const ProgramState& state) {
  const bool shares = options_.peer_copy && !state.joining;
  for (uint32_t t = 0; t < state.tensors.size() && shares; ++t) {
    const state::PlacedTensor& tensor = state.tensors[t];
    const uint64_t bytes = tensor.part.size() * tensor.shape.element_bytes;
    const absl::Status s = offered_.Add(t, tensor.place, bytes);
    if (!s.ok() && bytes > 0) {
      REWIRE_DEBUG("tensor %s is not shared inside the node: %s", tensor.shape.name.c_str(),
                   std::string(s.message()).c_str());
    }
  }
  if (!options_.cancelled())
    options_.publish(state::EncodePeerOffer(offered_.Publish(options_.epoch)));
}

absl::Status PeerSharing::ServePulls(std::vector<state::Outgoing>* outgoing) {
  std::map<MemberId, std::vector<uint32_t>> asked;
  for (const state::Outgoing& out : *outgoing) {
    const MemberId target = out.target.member;
    if (out.local || asked.contains(target)) continue;
    const auto note = notes_->Find(target, state::NoteKind::kPull);
    if (!note) continue;
    absl::StatusOr<std::vector<uint32_t>> tensors = state::DecodeTensors(*note);
    if (!tensors.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", target, ": ", std::string(tensors.status().message())));
    }
    asked[target] = *std::move(tensors);
  }
  std::erase_if(*outgoing, [&](const state::Outgoing& out) {
    const auto tensors = asked.find(out.target.member);
    if (out.local || tensors == asked.end()) return false;
    const auto& list = tensors->second;
    if (std::find(list.begin(), list.end(), out.tensor) == list.end()) return false;
    served_[out.target.member].push_back(out);
    bytes_served_ += out.end - out.begin;
    return true;
  });
  return absl::OkStatus();
}

absl::Status PeerSharing::TellReady(uint64_t step, Time deadline) {
  for (const auto& [target, copies] : served_) {
    ByteWriter version;
    version.Put(step);
    REWIRE_RETURN_IF_ERROR(
        outflow_->SendNote(copies[0].target, state::NoteKind::kReady, version.Take(), deadline));
  }
  return absl::OkStatus();
}

absl::Status PeerSharing::TellContents(state::NoteKind kind,
                                       const std::vector<state::TensorShape>& shapes,
                                       Time deadline) {
  for (const auto& [target, copies] : served_) {
    std::vector<state::CopyContent> contents;
    for (const state::Outgoing& out : copies) {
      const bool constant = shapes[out.tensor].change == state::Change::kConstant;
      if (constant != (kind == state::NoteKind::kContents)) continue;
      REWIRE_ASSIGN_OR_RETURN(const uint64_t content, outflow_->Content(out));
      contents.push_back({out.tensor, out.begin, content});
    }
    if (contents.empty()) continue;
    REWIRE_RETURN_IF_ERROR(
        outflow_->SendNote(copies[0].target, kind, state::EncodeContents(contents), deadline));
  }
  return absl::OkStatus();
}

}  // namespace rewire::elastic
