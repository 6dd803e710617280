import java.util.*;
import java.util.stream.*;

/** Objects that live long and others that do not, in several threads, and a large array. */
public class Garbage {
    public static void main(String[] words) {
        Map<Integer, String> all = new HashMap<>();
        for (int n = 0; n < 600_000; n++) all.put(n, "value " + n);
        long sum = 0;
        for (long n = 0; n < 600_000; n++) sum += all.get((int) (n * 7919 % 600_000)).length();
        System.out.println("objects " + sum);
        long threads = IntStream.range(0, 4).parallel().mapToLong(Garbage::churn).sum();
        System.out.println("threads " + threads);
        long[] numbers = LongStream.range(0, 4_000_000).map(n -> n * 2654435761L % 4_000_037).toArray();
        Arrays.sort(numbers);
        long ordered = 0;
        for (int n = 0; n < numbers.length; n++) ordered = (ordered + numbers[n] * (n % 7)) % 1_000_003;
        System.out.println("numbers " + ordered + " " + all.size());
    }

    /** Makes short-lived objects, and keeps the last ones. */
    private static long churn(int seed) {
        ArrayDeque<byte[]> kept = new ArrayDeque<>();
        long sum = 0;
        for (int n = 0; n < 200_000; n++) {
            byte[] bytes = new byte[200 + n % 100];
            bytes[n % bytes.length] = (byte) (n + seed);
            kept.add(bytes);
            if (kept.size() > 20_000) {
                byte[] oldest = kept.remove();
                for (byte value : oldest) sum += value;
            }
        }
        return sum + kept.size();
    }
}
