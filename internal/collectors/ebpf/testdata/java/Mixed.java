import java.io.FileInputStream;

/** Computes, and has the kernel copy memory, until its standard input ends. */
public class Mixed {
    static long sum;

    public static void main(String[] args) throws Exception {
        Thread worker = new Thread(Mixed::work, "mixed-worker");
        worker.setDaemon(true);
        worker.start();
        System.out.println("ready");
        while (System.in.read() >= 0) {}
    }

    static void work() {
        byte[] buffer = new byte[8192];
        try (FileInputStream zeros = new FileInputStream("/dev/zero")) {
            while (true) {
                compute();
                kernel(zeros, buffer);
            }
        } catch (java.io.IOException e) {
            throw new IllegalStateException(e);
        }
    }

    static void kernel(FileInputStream zeros, byte[] buffer) throws java.io.IOException {
        for (int i = 0; i < 50; i++) {
            sum += zeros.read(buffer);
        }
    }

    static void compute() {
        for (int depth = 0; depth < 20; depth++) {
            sum += recurse(12);
        }
    }

    static long recurse(int n) {
        return n < 2 ? n : recurse(n - 1) + recurse(n - 2);
    }
}
