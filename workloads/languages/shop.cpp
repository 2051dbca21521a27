// One fault in C++: shop FAULT sick|cured PORT BACKEND. README.md beside it says what each is.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <regex>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
#define NOINLINE __attribute__((noinline))

static bool sick;
static std::string backend;

static sockaddr_in at(const char *port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(atoi(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

// --- regex
static std::regex names;
static const std::string text = "one of the names" + std::string(6, 'a');

NOINLINE void matchNames() { std::regex_search(text, names, std::regex_constants::match_continuous); }

// --- lock
static std::mutex seats;
static int booked;

NOINLINE void audit() { std::this_thread::sleep_for(5ms); }

NOINLINE void bookSeat() {
  if (!sick) audit();
  std::lock_guard<std::mutex> held(seats);
  booked++;
  if (sick) audit();
}

// --- pool
static std::mutex poolLock;
static std::condition_variable returned;
static std::vector<int> pool;

static void openPool() {
  auto a = at(backend.substr(backend.rfind(':') + 1).c_str());
  for (int i = 0; i < (sick ? 2 : 16); i++) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (sockaddr *)&a, sizeof a)) abort();
    pool.push_back(fd);
  }
}

NOINLINE int leaseConnection() {
  std::unique_lock<std::mutex> held(poolLock);
  returned.wait(held, [] { return !pool.empty(); });
  int fd = pool.back();
  pool.pop_back();
  return fd;
}

NOINLINE void fetchPrice() {
  int fd = leaseConnection();
  char b[64];
  if (write(fd, "price\n", 6) != 6 || read(fd, b, sizeof b) <= 0) abort();
  std::lock_guard<std::mutex> held(poolLock);
  pool.push_back(fd);
  returned.notify_one();
}

// --- sized
NOINLINE void digestPart() {
  volatile uint64_t sum = 0;
  for (uint64_t i = 0; i < 5000000; i++) sum = sum * 31 + i;
}

static std::mutex jobsLock;
static std::condition_variable jobsCome;
static std::deque<std::function<void()>> jobs;

static void work() {
  for (;;) {
    std::unique_lock<std::mutex> held(jobsLock);
    jobsCome.wait(held, [] { return !jobs.empty(); });
    auto job = jobs.front();
    jobs.pop_front();
    held.unlock();
    job();
  }
}

static void openWorkers() {
  for (unsigned i = 0; i < (sick ? 4 * std::thread::hardware_concurrency() : 1); i++) std::thread(work).detach();
}

static void digestAll() {
  std::mutex m;
  std::condition_variable all;
  int left = 8;
  {
    std::lock_guard<std::mutex> held(jobsLock);
    for (int i = 0; i < 8; i++)
      jobs.push_back([&] {
        digestPart();
        std::lock_guard<std::mutex> done(m);
        if (--left == 0) all.notify_one();
      });
  }
  jobsCome.notify_all();
  std::unique_lock<std::mutex> held(m);
  all.wait(held, [&] { return left == 0; });
}

// --- loop
struct Later {
  std::chrono::steady_clock::time_point due;
  int fd;
};
static std::deque<Later> later;

static void answer(int fd) {
  if (write(fd, "ok\n", 3) != 3) close(fd);
}

NOINLINE void retryLater(int fd) {
  if (!sick) return later.push_back({std::chrono::steady_clock::now() + 20ms, fd});
  std::this_thread::sleep_for(20ms);
  answer(fd);
}

static void loop(int listener) {
  std::vector<pollfd> fds{{listener, POLLIN, 0}};
  char b[64];
  for (;;) {
    poll(fds.data(), fds.size(), later.empty() ? -1 : 5);
    for (; !later.empty() && later.front().due <= std::chrono::steady_clock::now(); later.pop_front())
      answer(later.front().fd);
    for (size_t i = fds.size(); i-- > 1;) {
      if (!fds[i].revents) continue;
      if (read(fds[i].fd, b, sizeof b) > 0) {
        retryLater(fds[i].fd);
      } else {
        close(fds[i].fd);
        fds.erase(fds.begin() + i);
      }
    }
    if (fds[0].revents) fds.push_back({accept(listener, nullptr, nullptr), POLLIN, 0});
  }
}

static void serve(int fd, void (*handle)()) {
  char b[64];
  while (read(fd, b, sizeof b) > 0) {
    handle();
    answer(fd);
  }
  close(fd);
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  std::string fault = argv[1];
  sick = std::string(argv[2]) == "sick";
  backend = argv[4];
  names = std::regex(sick ? "(\\w+\\s?)+;" : "\\w+;");
  int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto a = at(argv[3]);
  if (bind(listener, (sockaddr *)&a, sizeof a) || listen(listener, 128)) return 1;
  if (fault == "loop") loop(listener);
  if (fault == "pool") openPool();
  if (fault == "sized") openWorkers();
  std::map<std::string, void (*)()> handlers{
      {"regex", matchNames}, {"lock", bookSeat}, {"pool", fetchPrice}, {"sized", digestAll}};
  for (;;) std::thread(serve, accept(listener, nullptr, nullptr), handlers.at(fault)).detach();
}
