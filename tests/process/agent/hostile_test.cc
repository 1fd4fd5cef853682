// Tests an agent with hostile clients: garbage, half frames, slow readers, other users.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "reconfig/base/bytes.h"
#include "reconfig/base/framed_socket.h"
#include "reconfig/control/agent/control_messages.h"
#include "reconfig/elastic/protocol/codec.h"
#include "tests/process/agent/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

constexpr Duration kStrangerPatience = seconds(20);

class HostileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    agent_ = std::make_unique<Background>(Agent());
    ASSERT_TRUE(Eventually([this] { return Status().is_object(); }));
  }
  [[nodiscard]] std::vector<std::string> Agent() const {
    return {REWIRE_COMMAND,    "agent",     "--socket", socket(),    "--store",
            folder_ / "world", "--members", "1",        "--metrics", "127.0.0.1:0"};
  }
  [[nodiscard]] std::string socket() const { return folder_ / "s"; }
  nlohmann::json Status() {
    const CommandResult r = Rewire({"status", "--json", "--socket", socket()});
    return r.status == 0 ? nlohmann::json::parse(r.out, nullptr, false) : nlohmann::json();
  }
  static bool Eventually(const std::function<bool()>& condition) {
    const Time deadline = Now() + kStrangerPatience;
    while (!condition()) {
      if (Now() >= deadline) return false;
    }
    return true;
  }
  [[nodiscard]] FramedSocket Connect() const {
    UniqueFd fd;
    const SocketStatus s = ConnectUnix(socket(), Now() + kStrangerPatience, &fd);
    EXPECT_TRUE(s.ok()) << s.text;
    return FramedSocket(std::move(fd));
  }
  // True: the agent closes the connection within kStrangerPatience.
  static bool Closed(FramedSocket& s) {
    std::string frame;
    for (;;) {
      const SocketStatus status = s.Receive(&frame, Now() + kStrangerPatience);
      if (!status.ok()) return status.code != SocketCode::kTimeout;
    }
  }
  static std::string Raw(uint32_t length, uint16_t version, uint16_t type,
                         const std::string& payload) {
    ByteWriter w;
    w.Put(length);
    w.Put(version);
    w.Put(type);
    w.PutRaw(payload);
    return w.Take();
  }

  TemporaryFolder folder_;
  std::unique_ptr<Background> agent_;
};

TEST_F(HostileTest, GarbageClosesTheConnectionIsCountedAndLoggedOnce) {
  elastic::Hello hello;
  const std::string heartbeat = *elastic::Encode(elastic::Heartbeat{});
  const std::string garbage[] = {
      std::string(100, '\xff'),                     // a length above the limit
      Raw(4, elastic::kProtocolVersion, 999, ""),   // an unknown message
      Raw(4, 77, 1, ""),                            // another version
      Raw(7, elastic::kProtocolVersion, 1, "abc"),  // a Hello cut short
      Raw(2, 0, 0, ""),                             // shorter than its header
      Raw(11, elastic::kProtocolVersion, control::kControlType, "not one"),  // no JSON
      Raw(6, elastic::kProtocolVersion, control::kControlType, "[]"),        // no object
      Raw(4 + 200000, elastic::kProtocolVersion, control::kControlType, std::string(200000, '[')),
      heartbeat,  // no Hello before it
      control::EncodeControl({{"command", "launch"}}) +
          control::EncodeControl({{"command", "frobnicate"}}),
      *elastic::Encode(hello) + *elastic::Encode(hello),
  };
  for (const std::string& bytes : garbage) {
    FramedSocket s = Connect();
    const SocketStatus sent = SendAll(s.fd(), bytes, Now() + kStrangerPatience);
    ASSERT_TRUE(sent.ok() || sent.code == SocketCode::kClosed) << sent.text;
    EXPECT_TRUE(Closed(s)) << bytes.substr(0, 40);
  }
  const nlohmann::json status = Status();
  EXPECT_EQ(status["counters"]["garbage"], std::size(garbage)) << status;
  agent_->Signal(SIGTERM);
  const CommandResult end = agent_->End(kStrangerPatience);
  EXPECT_EQ(end.status, 0);
  const size_t first = end.err.find("are counted, not logged");
  ASSERT_NE(first, std::string::npos) << end.err;
  EXPECT_EQ(end.err.find("are counted, not logged", first + 1), std::string::npos) << end.err;
}

TEST_F(HostileTest, AMemberGivesNoCommands) {
  FramedSocket s = Connect();
  ASSERT_TRUE(
      s.Send(*elastic::Encode(elastic::Hello{}) + control::EncodeControl({{"command", "status"}}),
             Now() + kStrangerPatience)
          .ok());
  EXPECT_TRUE(Closed(s));
  EXPECT_EQ(Status()["counters"]["garbage"], 1);
}

TEST_F(HostileTest, ASecondLauncherIsRefusedUntilTheFirstIsGone) {
  const std::string launch = control::EncodeControl({{"command", "launch"}});
  const auto connected = [this] { return Status()["agent"]["launcher"] == true; };
  std::optional<FramedSocket> first = Connect();
  ASSERT_TRUE(first->Send(launch, Now() + kStrangerPatience).ok());
  ASSERT_TRUE(Eventually(connected));
  FramedSocket second = Connect();
  ASSERT_TRUE(second.Send(launch, Now() + kStrangerPatience).ok());
  std::string frame;
  ASSERT_TRUE(second.Receive(&frame, Now() + kStrangerPatience).ok());
  EXPECT_THAT(control::DecodeControl(frame)->value("error", ""),
              HasSubstr("is this job's launcher and is still connected"));
  EXPECT_TRUE(Closed(second));
  EXPECT_TRUE(connected());
  first.reset();
  FramedSocket third = Connect();
  ASSERT_TRUE(third.Send(launch, Now() + kStrangerPatience).ok());
  EXPECT_TRUE(Eventually(connected));
  agent_->Signal(SIGTERM);
  EXPECT_THAT(agent_->End(kStrangerPatience).err, HasSubstr("is this job's launcher"));
}

TEST_F(HostileTest, ByteByByteIsAsGoodAsAtOnce) {
  FramedSocket s = Connect();
  for (const char c : control::EncodeControl({{"command", "status"}})) {
    ASSERT_TRUE(SendAll(s.fd(), std::string_view(&c, 1), Now() + kStrangerPatience).ok());
  }
  std::string frame;
  ASSERT_TRUE(s.Receive(&frame, Now() + kStrangerPatience).ok());
  EXPECT_EQ((*control::DecodeControl(frame))["ok"], true);
}

TEST_F(HostileTest, HalfFramesAndIdleConnectionsDoNotKeepOthersFromBeingServed) {
  std::vector<FramedSocket> idle;
  const std::string frame = control::EncodeControl({{"command", "status"}});
  for (int i = 0; i < 50; ++i) {
    idle.push_back(Connect());
    if (i % 2 == 0) {
      ASSERT_TRUE(SendAll(idle.back().fd(), frame.substr(0, 6), Now() + kStrangerPatience).ok());
    }
  }
  EXPECT_EQ(Status()["counters"]["connections"], 51);
  idle.clear();
  EXPECT_TRUE(Eventually([this] { return Status()["counters"]["connections"] == 1; }));
}

TEST_F(HostileTest, AReaderThatDoesNotReadIsClosedAndOthersAreServed) {
  FramedSocket slow = Connect();
  std::string many;
  for (int i = 0; i < 200; ++i) many += control::EncodeControl({{"command", "metrics"}});
  bool closed = false;
  for (int i = 0; i < 500 && !closed; ++i) {
    closed = SendAll(slow.fd(), many, Now() + kStrangerPatience).code == SocketCode::kClosed;
  }
  EXPECT_TRUE(closed);
  EXPECT_EQ(Status()["counters"]["slow"], 1);
}

TEST_F(HostileTest, UnknownCommandsAndWrongFieldsAreNamed) {
  const struct {
    nlohmann::json command;
    std::string error;
  } wrong[] = {
      {{{"command", "frobnicate"}}, "unknown command 'frobnicate'"},
      {{{"command", 7}}, "unknown command ''"},
      {{{"nothing", 1}}, "unknown command ''"},
      {{{"command", "resize"}}, "'size'"},
      {{{"command", "resize"}, {"size", -1}}, "'size'"},
      {{{"command", "resize"}, {"size", "4"}}, "'size'"},
      {{{"command", "drain"}, {"members", "3"}}, "'members'"},
      {{{"command", "drain"}, {"members", {-3}}}, "'members'"},
      {{{"command", "drain"}, {"members", {3}}, {"within_ms", 0}}, "'within_ms'"},
      {{{"command", "replace"}, {"members", {1, 2}}}, "'members'"},
      {{{"command", "rebuild"}, {"reason", std::string(2000, 'x')}}, "'reason'"},
      {{{"command", "wait"}, {"epoch", "two"}}, "'epoch'"},
      {{{"command", "trace"}, {"epoch", 0}}, "'epoch'"},
  };
  FramedSocket s = Connect();
  for (const auto& w : wrong) {
    ASSERT_TRUE(s.Send(control::EncodeControl(w.command), Now() + kStrangerPatience).ok());
    std::string frame;
    ASSERT_TRUE(s.Receive(&frame, Now() + kStrangerPatience).ok()) << w.command;
    const nlohmann::json answer = *control::DecodeControl(frame);
    EXPECT_EQ(answer["ok"], false);
    EXPECT_THAT(answer["error"].get<std::string>(), HasSubstr(w.error)) << w.command;
  }
}

TEST_F(HostileTest, ASecondProcessWithALivingMembersIdIsRefused) {
  FramedSocket first = Connect();
  elastic::Hello hello;
  hello.incarnation = 1;
  ASSERT_TRUE(first.Send(*elastic::Encode(hello), Now() + kStrangerPatience).ok());
  std::string frame;
  ASSERT_TRUE(first.Receive(&frame, Now() + kStrangerPatience).ok());  // Welcome
  FramedSocket second = Connect();
  hello.incarnation = 2;
  ASSERT_TRUE(second.Send(*elastic::Encode(hello), Now() + kStrangerPatience).ok());
  ASSERT_TRUE(second.Receive(&frame, Now() + kStrangerPatience).ok());
  const absl::StatusOr<elastic::Message> answer = elastic::Decode(frame);
  ASSERT_TRUE(answer.ok());
  ASSERT_TRUE(std::holds_alternative<elastic::Refused>(*answer)) << elastic::MessageName(*answer);
  EXPECT_THAT(std::get<elastic::Refused>(*answer).reason, HasSubstr("member 0"));
  EXPECT_TRUE(Closed(second));
  // The first process stays a member and may connect again.
  EXPECT_EQ(Status()["members"][0]["state"], "training");
  FramedSocket again = Connect();
  hello.incarnation = 1;
  ASSERT_TRUE(again.Send(*elastic::Encode(hello), Now() + kStrangerPatience).ok());
  ASSERT_TRUE(again.Receive(&frame, Now() + kStrangerPatience).ok());
  EXPECT_TRUE(Closed(first));
  EXPECT_EQ(Status()["members"][0]["state"], "training");
}

TEST_F(HostileTest, ASecondAgentOnTheStoreOrTheSocketIsRefused) {
  const CommandResult same_store = Rewire(
      {"agent", "--socket", folder_ / "other", "--store", folder_ / "world"}, kStrangerPatience);
  EXPECT_EQ(same_store.status, 1);
  EXPECT_THAT(same_store.err, HasSubstr((folder_ / "world") + " is in use by process " +
                                        std::to_string(agent_->pid())));
  const CommandResult same_socket = Rewire(
      {"agent", "--socket", socket(), "--store", folder_ / "other-world"}, kStrangerPatience);
  EXPECT_EQ(same_socket.status, 1);
  EXPECT_THAT(same_socket.err, HasSubstr("another process listens on " + socket()));
  EXPECT_TRUE(Status().is_object());
}

// The member's connection stays open, as that of a process whose last thread has not ended.
TEST_F(HostileTest, EndOfAWitnessEndsTheConnectionOfItsProcess) {
  FramedSocket member = Connect();
  elastic::Hello hello;
  hello.incarnation = 5;
  ASSERT_TRUE(member.Send(*elastic::Encode(hello), Now() + kStrangerPatience).ok());
  FramedSocket witness = Connect();
  ASSERT_TRUE(witness.Send(*elastic::Encode(elastic::Witness{}), Now() + kStrangerPatience).ok());
  ASSERT_TRUE(Eventually([this] { return Status()["epoch"] == 1; }));
  // The last message of a process that ends by itself comes before the end of its witness.
  ASSERT_TRUE(member.Send(*elastic::Encode(elastic::Finished{}), Now() + kStrangerPatience).ok());
  witness.Close();
  EXPECT_TRUE(Closed(member));
  EXPECT_EQ(Status()["done"], true);
}

TEST_F(HostileTest, AKilledAgentsSuccessorTakesSocketAndStore) {
  FramedSocket member = Connect();
  elastic::Hello hello;
  hello.incarnation = 5;
  ASSERT_TRUE(member.Send(*elastic::Encode(hello), Now() + kStrangerPatience).ok());
  ASSERT_TRUE(Eventually([this] { return Status()["epoch"] == 1; }));
  agent_->Signal(SIGKILL);
  EXPECT_TRUE(Closed(member));
  agent_->End(kStrangerPatience);
  agent_ = std::make_unique<Background>(Agent());
  ASSERT_TRUE(Eventually([this] { return Status().is_object(); }));
  EXPECT_EQ(Status()["phase"], "RECOVERING");
  EXPECT_EQ(Status()["epoch"], 1);
  FramedSocket back = Connect();
  ASSERT_TRUE(back.Send(*elastic::Encode(hello), Now() + kStrangerPatience).ok());
  EXPECT_EQ(Rewire({"wait", "--socket", socket(), "--timeout", "20s"}).status, 0);
}

TEST_F(HostileTest, AnotherUserIsNotServed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  // Open permissions of the folder and the socket must not suffice for another user.
  chmod(folder_.path().c_str(), 0755);
  chmod(socket().c_str(), 0777);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    UniqueFd fd;
    if (!ConnectUnix(socket(), Now() + kStrangerPatience, &fd).ok()) _exit(3);
    FramedSocket s(std::move(fd));
    (void)s.Send(control::EncodeControl({{"command", "status"}}), Now() + kStrangerPatience);
    std::string frame;
    _exit(s.Receive(&frame, Now() + kStrangerPatience).code == SocketCode::kClosed ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Status()["counters"]["wrong_user"], 1);
}

TEST_F(HostileTest, MetricsOverHttp) {
  const std::string address =
      "127.0.0.1:" + std::to_string(Status()["agent"]["metrics_port"].get<int>());
  const auto ask = [&address](const std::string& request) {
    UniqueFd fd;
    EXPECT_TRUE(ConnectTcp(address, Now() + kStrangerPatience, &fd).ok());
    EXPECT_TRUE(SendAll(fd.get(), request, Now() + kStrangerPatience).ok());
    std::string out;
    char c = 0;
    while (ReceiveAll(fd.get(), &c, 1, Now() + kStrangerPatience).ok()) out.push_back(c);
    return out;
  };
  UniqueFd silent;  // a silent client does not delay other clients
  ASSERT_TRUE(ConnectTcp(address, Now() + kStrangerPatience, &silent).ok());
  const std::string good = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(good, HasSubstr("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(good, HasSubstr("# TYPE rewire_epoch gauge\n"));
  EXPECT_THAT(ask("GET /etc/passwd HTTP/1.1\r\n\r\n"), HasSubstr("404"));
  EXPECT_EQ(ask(std::string(20000, 'x')), "");
  for (const char* wrong : {"0.0.0.0:0", "65536", "22x", "+22", "", "127.0.0.1:99999"}) {
    const CommandResult refused =
        Rewire({"agent", "--socket", folder_ / "o", "--store", folder_ / "ow", "--metrics", wrong});
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err,
                HasSubstr(std::string("--metrics: metrics address '") + wrong +
                          "': must be PORT or 127.0.0.1:PORT, with a port of 0 to 65535"));
  }
}

TEST_F(HostileTest, SlowReadersOfMetricsDoNotBlockOthers) {
  const std::string address =
      "127.0.0.1:" + std::to_string(Status()["agent"]["metrics_port"].get<int>());
  // Some clients send nothing, some send half a request, and some never read their answers.
  std::vector<UniqueFd> slow(48);
  for (size_t i = 0; i < slow.size(); ++i) {
    ASSERT_TRUE(ConnectTcp(address, Now() + kStrangerPatience, &slow[i]).ok());
    const char* const said[] = {"", "GET /met", "GET /metrics HTTP/1.1\r\n\r\n"};
    ASSERT_TRUE(SendAll(slow[i].get(), said[i % 3], Now() + kStrangerPatience).ok());
  }
  UniqueFd fd;
  ASSERT_TRUE(ConnectTcp(address, Now() + kStrangerPatience, &fd).ok());
  ASSERT_TRUE(SendAll(fd.get(), "GET /metrics HTTP/1.1\r\n\r\n", Now() + kStrangerPatience).ok());
  std::string out;
  char c = 0;
  while (ReceiveAll(fd.get(), &c, 1, Now() + kStrangerPatience).ok()) out.push_back(c);
  EXPECT_THAT(out, HasSubstr("HTTP/1.1 200 OK\r\n"));
  // metrics_server_test tests the same while no client reaches its deadline.
  EXPECT_TRUE(Eventually([this] {
    const CommandResult r = Rewire({"metrics", "--socket", socket()});
    return r.out.find("rewire_connections_closed_total{reason=\"metrics\"} 0") == std::string::npos;
  }));
}

TEST_F(HostileTest, LimitsSilentConnectionsAndDropsOldestFirst) {
  std::vector<FramedSocket> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(Connect());
  EXPECT_TRUE(Eventually([this] { return Status()["counters"]["connections"] <= 65; }));
  EXPECT_TRUE(Closed(silent.front()));
  const std::string frame = control::EncodeControl({{"command", "status"}});
  ASSERT_TRUE(SendAll(silent.back().fd(), frame, Now() + kStrangerPatience).ok());
  std::string answer;
  EXPECT_TRUE(silent.back().Receive(&answer, Now() + kStrangerPatience).ok());
}

// Returns the processor time that a process has used, in clock ticks.
int64_t TicksOf(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) rest >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  rest >> user >> system;
  return user + system;
}

TEST_F(HostileTest, AnAgentWithoutDescriptorsDoesNotSpinAndServesAgainLater) {
  const std::string address =
      "127.0.0.1:" + std::to_string(Status()["agent"]["metrics_port"].get<int>());
  rlimit before{};
  ASSERT_EQ(prlimit(agent_->pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(prlimit(agent_->pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  FramedSocket waiting = Connect();  // the kernel's queue holds both connections
  UniqueFd metrics;
  ASSERT_TRUE(ConnectTcp(address, Now() + kStrangerPatience, &metrics).ok());
  const std::string frame = control::EncodeControl({{"command", "status"}});
  ASSERT_TRUE(SendAll(waiting.fd(), frame, Now() + kStrangerPatience).ok());
  const int64_t ticks = TicksOf(agent_->pid());
  const Time begin = Now();
  poll(nullptr, 0, 2000);  // a broken agent spins meanwhile
  const double used = static_cast<double>(TicksOf(agent_->pid()) - ticks) /
                      static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_LT(used / (ToMilliseconds(Now() - begin) / 1000), 0.2);
  ASSERT_EQ(prlimit(agent_->pid(), RLIMIT_NOFILE, &before, nullptr), 0);
  std::string answer;
  EXPECT_TRUE(waiting.Receive(&answer, Now() + kStrangerPatience).ok());
}

TEST_F(HostileTest, AJobKeyThatOthersCanReadIsRefused) {
  const std::string file = folder_ / "exposed.secret";
  std::ofstream(file) << std::string(32, 'k');
  const auto start = [&] {
    return Rewire({"agent", "--socket", folder_ / "x", "--store", folder_ / "exposed"},
                  kStrangerPatience);
  };
  chmod(file.c_str(), 0644);
  EXPECT_THAT(start().err, HasSubstr("only its owner"));
  chmod(file.c_str(), 0600);
  std::ofstream(file) << std::string(8, 'k');
  EXPECT_THAT(start().err, HasSubstr("bytes=8: must be 32"));
  unlink(file.c_str());
  ASSERT_EQ(symlink((folder_ / "world.secret").c_str(), file.c_str()), 0);
  EXPECT_THAT(start().err, HasSubstr("Too many levels of symbolic links"));
  struct stat st {};
  ASSERT_EQ(stat((folder_ / "world.secret").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600);
  EXPECT_EQ(st.st_size, 32);
  ASSERT_EQ(stat((folder_ / "world").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600);
}

TEST_F(HostileTest, EveryLineOfTheMetricsParses) {
  const CommandResult r = Rewire({"metrics", "--socket", socket()});
  ASSERT_EQ(r.status, 0);
  std::istringstream in(r.out);
  std::string typed;
  int samples = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("# HELP rewire_", 0) == 0) continue;
    if (line.rfind("# TYPE ", 0) == 0) {
      typed = line.substr(7, line.find(' ', 7) - 7);
      continue;
    }
    EXPECT_EQ(line.rfind(typed, 0), 0u) << line;
    const std::string value = line.substr(line.rfind(' ') + 1);
    char* end = nullptr;
    (void)strtod(value.c_str(), &end);
    EXPECT_EQ(*end, '\0') << line;
    ++samples;
  }
  EXPECT_GT(samples, 20);
}

}  // namespace
}  // namespace rewire
