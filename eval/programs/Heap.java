/* A Java heap larger than the budget: lists, a hash map and a tree of many objects, garbage in
 * between, each value checked.
 *
 * usage: java -Xmx1g Heap.java ENTRIES      prints a checksum that depends on ENTRIES alone
 */

import java.util.ArrayList;
import java.util.HashMap;
import java.util.TreeMap;

final class Heap {
    private static long mix(long z) {
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    public static void main(String[] words) {
        int entries = Integer.parseInt(words[0]);
        HashMap<Long, String> table = new HashMap<>();
        TreeMap<Long, long[]> tree = new TreeMap<>();
        ArrayList<byte[]> blocks = new ArrayList<>();
        for (int i = 0; i < entries; i++) {
            table.put(mix(i), Long.toString(mix(i + 1)));
            if (i % 8 == 0) {
                tree.put(mix(i + 2), new long[] {i, mix(i), mix(i + 3)});
            }
            if (i % 64 == 0) {
                byte[] block = new byte[4096];
                block[i % 4096] = (byte) i;
                blocks.add(block);
            }
        }
        long sum = 0;
        for (int i = 0; i < entries; i++) {
            String text = table.get(mix(i));
            if (!text.equals(Long.toString(mix(i + 1)))) {
                throw new IllegalStateException("wrong text at " + i + ": " + text);
            }
            sum = sum * 31 + text.hashCode();
        }
        for (var entry : tree.entrySet()) {
            long[] row = entry.getValue();
            if (mix(row[0]) != row[1] || mix(row[0] + 3) != row[2]) {
                throw new IllegalStateException("wrong row at " + entry.getKey());
            }
            sum = sum * 31 + row[2];
        }
        for (int k = 0; k < blocks.size(); k++) {
            int i = k * 64;
            if (blocks.get(k)[i % 4096] != (byte) i) {
                throw new IllegalStateException("wrong block " + k);
            }
        }
        System.out.println(table.size() + " " + tree.size() + " " + blocks.size() + " " + sum);
    }
}
