// Compute in Java: loops for the JIT, virtual calls, strings, garbage, threads and exceptions.
// The argument says how often.
import java.util.TreeMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.ArrayList;
import java.util.List;

public class Compute {
    interface Shape { long area(); }
    record Square(long side) implements Shape { public long area() { return side * side; } }
    record Bar(long width, long height) implements Shape { public long area() { return width * height; } }

    static long words(int count) {
        TreeMap<String, Integer> seen = new TreeMap<>();
        for (int i = 0; i < count; i++) seen.merge(Long.toHexString(i * 2654435L % 4096), 1, Integer::sum);
        long total = 0;
        for (var entry : seen.entrySet()) total += (long) entry.getKey().length() * entry.getValue();
        return total;
    }

    static long areas(int count) {
        Shape[] shapes = new Shape[count];
        for (int i = 0; i < count; i++) shapes[i] = i % 3 == 0 ? new Square(i % 11) : new Bar(i % 5, 3);
        long total = 0;
        for (Shape shape : shapes) total += shape.area();
        return total;
    }

    static long caught(int[] numbers, int at) {
        try {
            return numbers[at];
        } catch (ArrayIndexOutOfBoundsException error) {
            return 7;
        }
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 1;
        var pool = Executors.newFixedThreadPool(2);
        List<Future<Long>> results = new ArrayList<>();
        for (int worker = 0; worker < 4; worker++) {
            results.add(pool.submit(() -> {
                long total = 0;
                int[] numbers = {1, 2, 3};
                for (int round = 0; round < rounds; round++)
                    total += words(5000) + areas(5000) + caught(numbers, round % 5);
                return total;
            }));
        }
        long total = 0;
        for (var result : results) total += result.get();
        pool.shutdown();
        System.out.println(total);
    }
}
