// A receiver for tests of TcpTransport that takes a stream message by message and dies at the step
// that a test names. The receiver runs on its own thread; every wait has a deadline.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "reconfig/base/socket.h"
#include "reconfig/state/stream/stream_messages.h"

namespace rewire::state {

inline constexpr Duration kStreamPatience = seconds(20);

inline constexpr Key kStreamSecret{{77}};
inline constexpr StreamKey kStreamKey{Purpose::kTransition, 2, kStreamSecret};

inline std::vector<char> Numbers(size_t bytes) {
  std::vector<char> v(bytes);
  std::iota(v.begin(), v.end(), 0);
  return v;
}

// Returns the correct answer to a hello.
inline std::string ChallengeFor(std::string_view hello, const Key& secret = kStreamSecret) {
  const Key key = ConnectionKey(secret, *DecodeStreamHello(hello));
  StreamChallenge challenge;
  challenge.known = true;
  challenge.nonce = RandomNonce();
  challenge.proof = ProofOf(Side::kListening, key, hello, challenge.nonce);
  return EncodeStreamChallenge(challenge);
}

// Returns the correct answer to a challenge.
inline std::string ProofFor(std::string_view hello, std::string_view challenge,
                            const Key& secret = kStreamSecret) {
  const Key key = ConnectionKey(secret, *DecodeStreamHello(hello));
  const auto decoded = DecodeStreamChallenge(challenge);
  if (!decoded.ok() || !decoded->known) return std::string(kStreamProofSize, 'x');
  return EncodeStreamProof(ProofOf(Side::kConnecting, key, hello, decoded->nonce));
}

// The last step that a receiver does before it dies, in the order of the protocol.
enum class Until {
  kAccept,         // has accepted a connection and reads nothing
  kHello,          // has read the hello
  kHalfChallenge,  // has sent half of its challenge
  kProof,          // has read the proof
  kHalfAnswer,     // has sent half of the answer to the proof
  kOpen,           // has sent the whole answer to the proof
  kHeader,         // has read the first fragment's header
  kHalfBody,       // has read half of the first fragment's body
  kBody,           // has read the whole body
  kHalfPlaced,     // has sent half of the answer to the fragment
  kPlaced,         // has sent the whole answer
  kSecondHeader,   // the same five steps for the second fragment
  kSecondHalfBody,
  kSecondBody,
  kSecondHalfPlaced,
  kSecondPlaced,
  kEnd,  // does not die
};

// Closes the connection with a reset, as after the crash of the peer's machine.
inline void ResetConnection(UniqueFd* fd) {
  const linger now = {1, 0};
  setsockopt(fd->get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  fd->reset();
}

class ScriptedReceiver {
 public:
  // A nonempty `answer` replaces the answer to the first fragment and ends the script.
  explicit ScriptedReceiver(Until until, bool reset = false, std::string answer = {},
                            const Key& secret = kStreamSecret)
      : until_(until), reset_(reset), answer_(std::move(answer)), secret_(secret) {
    EXPECT_TRUE(ListenTcp("127.0.0.1:0", &listener_, &address_).ok());
    thread_ = std::thread([this] { Run(); });
  }
  ~ScriptedReceiver() {
    stop_ = true;
    thread_.join();
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  // From its n-th connection on, the receiver does not die.
  void LiveFrom(int n) { live_from_ = n; }
  // Pause() makes the receiver read nothing after its first answer, until Resume().
  void Resume() { paused_ = false; }
  void Pause() { paused_ = true; }

 private:
  void Run() {
    pthread_setname_np(pthread_self(), "test-receiver");
    while (!stop_) {
      UniqueFd fd;
      if (!Accept(listener_.get(), Now() + milliseconds(10), &fd).ok()) continue;
      dies_ = ++connections_ < live_from_;
      Serve(fd.get());
      if (reset_) {
        ResetConnection(&fd);
      } else {
        // Drain() reads until the sender closes: a close with unread bytes would cause a reset.
        shutdown(fd.get(), SHUT_WR);
        Drain(fd.get());
      }
    }
  }
  bool Read(int fd, void* bytes, size_t size) {
    // Short waits let the loop see stop_.
    auto* at = static_cast<char*>(bytes);
    for (const Time deadline = Now() + kStreamPatience; size > 0 && Now() < deadline && !stop_;) {
      if (!WaitReady(fd, POLLIN, Now() + milliseconds(10))) continue;
      const ssize_t n = recv(fd, at, size, 0);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
      at += std::max<ssize_t>(n, 0);
      size -= static_cast<size_t>(std::max<ssize_t>(n, 0));
    }
    return size == 0;
  }
  void Drain(int fd) {
    for (const Time deadline = Now() + kStreamPatience; Now() < deadline && !stop_;) {
      if (!WaitReady(fd, POLLIN, Now() + milliseconds(10))) continue;
      char ignored[65536];
      const ssize_t n = recv(fd, ignored, sizeof ignored, 0);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return;
    }
  }
  bool Write(int fd, std::string_view bytes) {
    return SendAll(fd, bytes, Now() + kStreamPatience).ok();
  }
  bool Answer(int fd, Reply reply, bool half) {
    const std::string bytes = EncodeReply(reply);
    if (half) {
      Write(fd, bytes.substr(0, bytes.size() / 2));
      return false;
    }
    return Write(fd, bytes);
  }
  [[nodiscard]] bool Dies(Until at) const { return dies_ && until_ == at; }
  // Takes one fragment; the fragment's five steps begin at `header` in Until.
  bool Take(int fd, Until header, bool dies) {
    const auto at = [&](int n) { return dies && Dies(Until(static_cast<int>(header) + n)); };
    char bytes[kHeaderSize];
    if (!Read(fd, bytes, sizeof bytes) || at(0)) return false;
    const auto decoded = DecodeHeader({bytes, sizeof bytes});
    if (!decoded.ok()) return false;
    std::vector<char> body(decoded->bytes);
    const size_t half = body.size() / 2;
    if (!Read(fd, body.data(), half) || at(1)) return false;
    if (!Read(fd, body.data() + half, body.size() - half) || at(2)) return false;
    if (!answer_.empty()) {
      Write(fd, answer_);
      // Drain() waits until the sender closes the connection.
      Drain(fd);
      return false;
    }
    return Answer(fd, Reply::kPlaced, at(3)) && !at(4);
  }
  void Serve(int fd) {
    if (Dies(Until::kAccept)) return;
    char hello[kStreamHelloSize];
    if (!Read(fd, hello, sizeof hello) || Dies(Until::kHello)) return;
    const std::string challenge = ChallengeFor({hello, sizeof hello}, secret_);
    if (Dies(Until::kHalfChallenge)) {
      Write(fd, challenge.substr(0, challenge.size() / 2));
      return;
    }
    Write(fd, challenge);
    char proof[kStreamProofSize];
    if (!Read(fd, proof, sizeof proof) || Dies(Until::kProof)) return;
    if (!Answer(fd, Reply::kAccepted, Dies(Until::kHalfAnswer)) || until_ == Until::kOpen) return;
    while (paused_ && !stop_) WaitReady(fd, 0, Now() + milliseconds(1));
    if (!Take(fd, Until::kHeader, true) || !Take(fd, Until::kSecondHeader, true)) return;
    while (Take(fd, Until::kEnd, false)) {
    }
  }

  const Until until_;
  const bool reset_;
  const std::string answer_;
  const Key secret_;
  UniqueFd listener_;
  std::string address_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> paused_{false};
  std::atomic<int> live_from_{INT_MAX};
  int connections_ = 0;
  bool dies_ = true;
  std::thread thread_;
};

}  // namespace rewire::state
