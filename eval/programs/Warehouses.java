/* Orders of 16 warehouses, a thread each, after TPC-C's and SPECjbb's: new orders, payments,
 * deliveries and looks at the stock, over trees that grow.
 *
 * usage: java -Xmx96m Warehouses ORDERS      prints a checksum that depends on ORDERS alone
 */

import java.util.ArrayList;
import java.util.TreeMap;

final class Warehouses {
    private static final int WAREHOUSES = 16;
    private static final int ITEMS = 4000;

    private record Line(int item, int quantity, String note) {}

    private record Order(long number, ArrayList<Line> lines) {}

    private static final class Warehouse extends Thread {
        private final TreeMap<Long, Order> orders = new TreeMap<>();
        private final int[] stock = new int[ITEMS];
        private final long[] paid = new long[1000];
        private final int count;
        private long random;
        private long delivered;
        private long sum;

        Warehouse(int number, int count) {
            this.count = count;
            random = number + 1;
        }

        private int next(int bound) {
            random ^= random << 13;
            random ^= random >>> 7;
            random ^= random << 17;
            return (int) Long.remainderUnsigned(random, bound);
        }

        private void order(long number) {
            var lines = new ArrayList<Line>();
            for (int i = next(8) + 4; i > 0; i--) {
                int item = next(ITEMS);
                int quantity = next(9) + 1;
                stock[item] -= quantity;
                lines.add(new Line(item, quantity, "line " + i + " of order " + number));
            }
            orders.put(number, new Order(number, lines));
        }

        private void look(long number) {
            Order order = orders.get(number);
            if (order == null) {
                return;
            }
            if (order.number() != number) {
                throw new IllegalStateException("order " + number + " is " + order.number());
            }
            for (Line line : order.lines()) {
                sum = sum * 31 + line.note().hashCode() + line.quantity() + stock[line.item()];
            }
        }

        @Override
        public void run() {
            for (long number = 0; number < count; number++) {
                order(number);
                paid[next(paid.length)] += next(500);
                look(number - next(2000));
                if (number % 3 == 0 && orders.size() > count / 2) {
                    var first = orders.pollFirstEntry();
                    delivered += first.getValue().lines().size();
                }
            }
        }

        long result() {
            return sum + delivered + orders.size();
        }
    }

    public static void main(String[] words) throws InterruptedException {
        Thread.setDefaultUncaughtExceptionHandler((thread, why) -> {
            why.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        var all = new ArrayList<Warehouse>();
        for (int i = 0; i < WAREHOUSES; i++) {
            all.add(new Warehouse(i, Integer.parseInt(words[0])));
        }
        for (Warehouse warehouse : all) {
            warehouse.start();
        }
        long sum = 0;
        for (Warehouse warehouse : all) {
            warehouse.join();
            sum = sum * 31 + warehouse.result();
        }
        System.out.println(sum);
    }
}
