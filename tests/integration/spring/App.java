import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Import;

/** An application with Boot's defaults around the example: it does what it is told on its standard input, and says so. */
@EnableAutoConfiguration
@Import(PaymentsRoute.class)
public class App {
    public static void main(String[] args) throws Exception {
        PaymentsRoute route = SpringApplication.run(App.class, args).getBean(PaymentsRoute.class);
        say("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order; (order = orders.readLine()) != null; ) {
            String value = order;
            if (order.equals("kill")) {
                Thread.getAllStackTraces().keySet().stream()
                    .filter(t -> t.getName().equals("route-reader")).forEach(Thread::interrupt);
            } else {
                new Thread(() -> send(route, value)).start();
            }
        }
        Thread.currentThread().join();
    }

    private static void send(PaymentsRoute route, String value) {
        try {
            route.send("k", value).whenComplete((done, error) ->
                say(error == null ? "sent " + value + " " + done.getRecordMetadata().topic() : "lost " + value));
        } catch (Exception e) {
            say("refused " + value + " " + e.getMessage());
        }
    }

    private static synchronized void say(String line) {
        System.out.println("> " + line);
    }
}
