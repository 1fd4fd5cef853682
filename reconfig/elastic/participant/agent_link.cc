// The connection to the agent; see agent_link.h.
#include "reconfig/elastic/participant/agent_link.h"

#include <algorithm>

#include "reconfig/base/log.h"
#include "reconfig/elastic/protocol/codec.h"

namespace rewire::elastic {
namespace {

constexpr Duration kLongestPause = milliseconds(500);

}  // namespace

bool AgentLink::TryConnect(Time now) {
  if (connected() || now < next_try_) return false;
  UniqueFd fd;
  if (const SocketStatus s = ConnectUnix(path_, now + milliseconds(100), &fd); !s.ok()) {
    if (s.code == SocketCode::kForeign && foreign_.empty()) {
      foreign_ = s.text;
      REWIRE_ERROR("%s", s.text.c_str());
    }
    Drop(now);
    return false;
  }
  socket_ = FramedSocket(std::move(fd));
  return true;
}

std::vector<Message> AgentLink::Read(Time now) {
  std::vector<Message> messages;
  const SocketStatus read = socket_.ReadReady();
  SocketStatus status;
  while (std::optional<std::string> frame = socket_.Next(&status)) {
    absl::StatusOr<Message> message = Decode(*frame);
    if (!message.ok()) {
      REWIRE_WARN("receive from the agent at %s: malformed message: %s", path_.c_str(),
                  std::string(message.status().message()).c_str());
      Drop(now);
      return messages;
    }
    pause_ = milliseconds(20);
    messages.push_back(std::move(*message));
  }
  if (!status.ok() || !read.ok()) Drop(now);
  return messages;
}

void AgentLink::Send(Time now, const Message& message) {
  if (!connected()) return;
  const absl::StatusOr<std::string> frame = Encode(message);
  if (!frame.ok()) {
    REWIRE_ERROR("send to the agent at %s: the message is too long: %s", path_.c_str(),
                 std::string(frame.status().message()).c_str());
    return Drop(now);
  }
  if (!socket_.Queue(*frame).ok()) return Drop(now);
  Flush(now);
}

void AgentLink::Flush(Time now) {
  if (connected() && !socket_.Flush().ok()) Drop(now);
}

void AgentLink::Drop(Time now) {
  socket_.Close();
  next_try_ = now + pause_;
  pause_ = std::min<Duration>(2 * pause_, kLongestPause);
}

// ---- sent events --------------------------------------------------------------------------------

uint64_t SentEvents::Ask() {
  MutexLock lock(&mutex_);
  return ++asked_;
}

void SentEvents::Reach(uint64_t call) {
  MutexLock lock(&mutex_);
  reached_ = std::max(reached_, call);
}

void SentEvents::NotifySent() {
  MutexLock lock(&mutex_);
  if (sent_ == reached_) return;
  sent_ = reached_;
  changed_.NotifyAll();
}

void SentEvents::Await(uint64_t call, Time deadline) {
  MutexLock lock(&mutex_);
  while (sent_ < call && !ended_ && Now() < deadline) changed_.WaitUntil(&mutex_, deadline);
}

void SentEvents::End() {
  MutexLock lock(&mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace rewire::elastic
