// What a program of one thread saves as long as the C library knows of no other thread: nanoseconds of four operations that
// take a lock, or count atomically, once there are two.
//
//   c++ -O2 -o onethread eval/onethread.cc && ./onethread && flashvm run --ram 1G -- ./onethread
#include <chrono>
#include <cstdio>
#include <memory>
#include <pthread.h>
#include <vector>

template <typename Work> static void measure(const char *what, long count, Work work) {
    auto start = std::chrono::steady_clock::now();
    work();
    std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    std::printf("%-24s %6.2f ns\n", what, taken.count() / double(count));
}

int main() {
    const long many = 50000000;
    std::FILE *zero = std::fopen("/dev/zero", "r"), *null = std::fopen("/dev/null", "w");
    if (!zero || !null) return 1;
    long sum = 0;
    measure("getc", many, [&] { for (long i = 0; i < many; i++) sum += getc(zero); });
    measure("putc", many, [&] { for (long i = 0; i < many; i++) putc(int(i), null); });
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    measure("mutex, lock and unlock", many, [&] {
        for (long i = 0; i < many; i++) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
        }
    });
    std::vector<std::shared_ptr<long>> pointers;
    for (long i = 0; i < 1000; i++) pointers.push_back(std::make_shared<long>(i));
    measure("shared_ptr, a copy", many, [&] {
        for (long i = 0; i < many / 1000; i++)
            for (auto pointer : pointers) sum += *pointer;
    });
    return sum == 42;
}
